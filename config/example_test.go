package config_test

import (
	"fmt"

	"github.com/chorus-comms/chorus/config"
)

// ExampleLoad reads an environment, and shows the error of a bad value, which names its variable. A program passes nil,
// for its own environment.
func ExampleLoad() {
	env := map[string]string{"CHORUS_FABRIC": "tcp", "TORCHCOMM_TIMEOUT_SECONDS": "30"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	cfg, err := config.Load(lookup)
	fmt.Println(cfg.Fabric, cfg.Timeout, err)
	for _, v := range cfg.Vars() {
		if v.Origin != config.Default {
			fmt.Printf("%s=%s\n", v.Name, v.Value)
		}
	}
	env["CHORUS_FABRIC"] = "carrier pigeon"
	cfg, err = config.Load(lookup)
	fmt.Println(cfg.Fabric, err != nil)
	// Output:
	// tcp 30s <nil>
	// TORCHCOMM_TIMEOUT_SECONDS=30
	// CHORUS_FABRIC=tcp
	// auto true
}
