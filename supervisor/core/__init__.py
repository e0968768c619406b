"""Pure rules: values in, values out. No clock, disk, environment, process or third-party package."""
