"""The whole system as processes of this machine, for the demo and the measurements."""
