"""A statement of what a run did and promised, and the check of it by somebody who trusts nobody."""
