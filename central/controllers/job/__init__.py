"""The Job controller: facts of Jobs and their pods in, decisions out. Pure, as all of the core."""
