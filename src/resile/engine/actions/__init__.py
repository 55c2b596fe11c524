"""How each type of step becomes something that an executor can start, or an answer at once."""
