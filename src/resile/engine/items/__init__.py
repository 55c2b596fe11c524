"""The items of maps: how the engine lists them, keeps them in files and reads them back."""
