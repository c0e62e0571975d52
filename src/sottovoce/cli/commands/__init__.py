"""The commands, one file each: the file's name is the command's."""
