// Package config holds every environment variable that Chorus reads, each as one documented field of one struct.
//
//	cfg, err := config.Load(nil) // nil: the process environment
//	if err != nil {
//		return err // names each variable whose value cannot be used
//	}
//	deadline := cfg.Timeout
//
// [Config.Vars] lists all of them with value, default and origin; that is what `chorus doctor` prints.
//
// Invariants:
//
//   - No other package calls os.Getenv for a setting of Chorus. (The variables by which launchers tell a process its
//     rank are not settings; package bootstrap reads them.)
//   - An empty variable counts as unset.
//   - A value that cannot be used is an error that names the variable, the value and what would be accepted; it is
//     never replaced silently. [Load] still returns a complete Config then, with the defaults in the places of the bad
//     values.
//   - A Config is a plain value: after Load nothing here reads the environment again, so concurrent use needs no lock.
//   - This package imports only the standard library, so that every other package may import it.
package config
