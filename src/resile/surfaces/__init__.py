"""What users meet: the command line today. Surfaces hold no logic; they call the verbs."""
