"""What agents do: they judge the parked failures of runs, with what was decided before."""
