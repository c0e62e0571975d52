"""The Python API: data, models and schemes as objects in, a result out; `sottovoce` itself has the public names."""
