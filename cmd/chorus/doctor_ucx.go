package main

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/fabric/ucx/abi"
)

// ucxFacts are the libraries of UCX, the first of which the fabric ucx takes, and what there is for it to use.
type ucxFacts struct {
	Libraries []libraryFacts   `json:"libraries"`
	RDMA      []abi.RDMADevice `json:"rdma_devices"`
	Resources []string         `json:"resources,omitempty"` // transport/device, as UCX says
	Error     string           `json:"error,omitempty"`     // why it can't be asked
	// Far is the fabric between hosts that a program with the fabric ucx takes here unless it names one. Why is the
	// reason.
	Far string `json:"between_hosts"`
	Why string `json:"between_hosts_because"`
}

// askUCX asks UCX for its transports and devices, and whether one of them is faster than TCP; nil in a command that
// can't open libraries.
var askUCX func() (resources []string, fast bool, err error)

// ucx looks for UCX.
func (d *diagnosis) ucx() {
	cfg, _ := config.Load(nil) // errors are the settings'
	var places []string
	if cfg.UCXLibrary != "" {
		places = []string{cfg.UCXLibrary}
	}
	d.UCX = ucxFacts{Libraries: []libraryFacts{}, RDMA: append([]abi.RDMADevice{}, abi.RDMADevices(abi.Sysfs)...)}
	for _, found := range abi.Find(places...) {
		l := libraryFacts{Path: found.Path, Version: found.Version, Has: found.Transports}
		if found.Err != nil {
			l.Error = found.Err.Error()
		}
		d.UCX.Libraries = append(d.UCX.Libraries, l)
	}
	asked, fast := askUCX != nil && len(d.UCX.Libraries) > 0, false
	if asked {
		var err error
		if d.UCX.Resources, fast, err = askUCX(); err != nil {
			d.UCX.Error = err.Error()
		}
	}
	d.UCX.Far, d.UCX.Why = betweenHosts(cfg, abi.Seems(abi.Sysfs, cfg.UCXLibrary), asked, fast)
}

// betweenHosts says which fabric leads to other hosts, as far as this one decides, and why. lacks is what UCX seems to
// lack here; asked and fast are what UCX itself says.
func betweenHosts(cfg *config.Config, lacks error, asked, fast bool) (name, why string) {
	switch {
	case cfg.Fabric != "auto":
		return cfg.Fabric, "CHORUS_FABRIC names it"
	case cfg.FabricFar != "auto":
		return cfg.FabricFar, "CHORUS_FABRIC_FAR names it"
	case cfg.TLS || cfg.TLSCert != "":
		return "tcp", "UCX doesn't encrypt, and CHORUS_TLS is on"
	case lacks != nil:
		return "tcp", lacks.Error()
	case asked && !fast:
		return "tcp", "UCX sees no transport that is faster"
	case asked:
		return "ucx", "UCX sees a transport that is faster than TCP; all hosts must have one"
	}
	return "ucx", "a port of an RDMA device is active; all hosts must have one, for which UCX has a transport"
}

// printUCX prints what ucx has found.
func (d *diagnosis) printUCX(p *page) {
	p.section("UCX")
	if len(d.UCX.Libraries) == 0 {
		p.row("library", "none found (CHORUS_UCX_LIBRARY names one)")
	}
	for _, l := range d.UCX.Libraries {
		if l.Error != "" {
			p.row("library", "%s: %s", l.Path, l.Error)
			continue
		}
		p.row("library", "%s: %s", l.Path, orNone(l.Version != "", "version %s", l.Version))
		p.row("", "modules %s", orNone(len(l.Has) > 0, "%s", strings.Join(l.Has, ", ")))
	}
	switch {
	case d.UCX.Error != "":
		p.row("transports", "%s", d.UCX.Error)
	case askUCX != nil:
		p.row("transports", "%s", orNone(len(d.UCX.Resources) > 0, "%s", strings.Join(d.UCX.Resources, ", ")))
	}
	var devices []string
	for _, r := range d.UCX.RDMA {
		state := "no active port"
		if r.Active {
			state = "active"
		}
		devices = append(devices, fmt.Sprintf("%s (%s)", r.Name, state))
	}
	p.row("RDMA devices", "%s", orNone(len(devices) > 0, "%s", strings.Join(devices, ", ")))
	p.row("between hosts", "%s: %s", d.UCX.Far, d.UCX.Why)
	p.row("protection", "UCX doesn't encrypt: with CHORUS_TLS the fabric ucx is refused")
}
