"""The page of `ilb serve`: who was decided for, how, why and with what outcome; read only, without scripts."""
