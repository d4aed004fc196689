"""The command `viewsweep`: one file for each subcommand, and what they show on a terminal."""
