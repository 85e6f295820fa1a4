package main

import (
	"strings"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/fabric/ucx/abi"
)

// ucxFacts are the libraries of UCX, the first of which the fabric ucx takes, and what there is for it to use.
type ucxFacts struct {
	Libraries []libraryFacts `json:"libraries"`
	RDMA      []string       `json:"rdma_devices"`
	Resources []string       `json:"resources,omitempty"` // transport/device, as UCX says
	Error     string         `json:"error,omitempty"`     // why it can't be asked
}

// askUCX asks UCX for its transports and devices; nil in a command that can't open libraries.
var askUCX func() ([]string, error)

// ucx looks for UCX.
func (d *diagnosis) ucx() {
	cfg, _ := config.Load(nil) // errors are the settings'
	var places []string
	if cfg.UCXLibrary != "" {
		places = []string{cfg.UCXLibrary}
	}
	d.UCX = ucxFacts{Libraries: []libraryFacts{}, RDMA: append([]string{}, abi.RDMADevices()...)}
	for _, found := range abi.Find(places...) {
		l := libraryFacts{Path: found.Path, Version: found.Version, Has: found.Transports}
		if found.Err != nil {
			l.Error = found.Err.Error()
		}
		d.UCX.Libraries = append(d.UCX.Libraries, l)
	}
	if askUCX == nil || len(d.UCX.Libraries) == 0 {
		return
	}
	var err error
	if d.UCX.Resources, err = askUCX(); err != nil {
		d.UCX.Error = err.Error()
	}
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
	p.row("RDMA devices", "%s", orNone(len(d.UCX.RDMA) > 0, "%s", strings.Join(d.UCX.RDMA, ", ")))
	p.row("protection", "UCX doesn't encrypt: with CHORUS_TLS the fabric ucx is refused")
}
