"""The command `viewsweep`: one file for each subcommand, and their output on a terminal."""
