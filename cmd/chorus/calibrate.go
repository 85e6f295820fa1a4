package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/plan/calibration"
)

// calibrationFile is where calibrations are written: where they are read, if that's switched on.
func calibrationFile() (path string, on bool, err error) {
	cfg, err := config.Load(nil)
	if err != nil {
		return "", false, err
	}
	if path, err = calibration.Path(cfg.Calibration); path != "" || err != nil {
		return path, true, err
	}
	path, err = calibration.Path("on")
	return path, false, err
}

// checkCalibrate refuses what a calibration has no use for, before ranks are started.
func (f *benchFlags) checkCalibrate(changed func(flag string) bool, args []string) error {
	for _, name := range []string{"min", "max", "step", "step-bytes", "dtype", "op", "root", "memory", "in-place",
		"out-of-place", "refill", "algorithm", "time",
		"warmup", "iters", "check", "json", "csv", "plot"} {
		if changed(name) {
			return usagef("--calibrate decides what is measured; it takes no --%s", name)
		}
	}
	switch {
	case len(args) > 0:
		return usagef("--calibrate measures no single operation, such as %s", args[0])
	case f.ranks.fabric != "auto" || f.ranks.device != device.Host:
		return usagef("--calibrate measures the host's memory, by the fabrics that auto chooses among")
	}
	return nil
}

// calibrate runs on each rank. The lowest of each host writes, rank 0 reports.
func (f *benchFlags) calibrate(ctx context.Context, c *comm.Comm, opts []comm.NewOption, w io.Writer) error {
	path, on, err := calibrationFile()
	if err != nil {
		return err
	}
	far, err := comm.New(ctx, append(slices.Clone(opts), comm.WithFabric("tcp"), comm.WithTimeout(f.ranks.timeout),
		comm.WithName("far"))...)
	if err != nil {
		return err
	}
	defer far.Finalize(ctx)
	e, err := bench.Calibrate(ctx, c, far)
	if err != nil {
		return err
	}
	type place struct {
		Host calibration.Host
		Path string
	}
	mine := place{calibration.Here(), path}
	places, err := comm.AllGather(ctx, comm.Objects{C: c}, mine)
	if err != nil {
		return err
	}
	if slices.Index(places, mine) == c.Rank() {
		err = calibration.Store(path, e)
	}
	if e2 := c.Barrier(ctx); err == nil { // it's written everywhere when rank 0 says so
		err = e2
	}
	if err != nil || c.Rank() != 0 {
		return err
	}
	if err := printCalibration(w, e); err != nil {
		return err
	}
	if e.Placement != bench.Near && e.Placement != bench.Far {
		fmt.Fprintf(w, "the cores were %s meanwhile: measure again when the machine is idle\n", e.Placement)
	}
	_, err = fmt.Fprintf(w, "written to %s\n", path)
	if err == nil && !on {
		_, err = fmt.Fprintln(w, "CHORUS_CALIBRATION=on makes programs of as many ranks use it")
	}
	return err
}

// printCalibration shows an entry beside the defaults.
func printCalibration(w io.Writer, e calibration.Entry) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "calibration for %d ranks, %s, cores %s\n", e.Ranks, e.Date, e.Placement)
	fmt.Fprintf(tw, "  value\there\tdefault\t\n")
	m, d := e.Machine, plan.DefaultMachine()
	for _, v := range []struct {
		name, unit    string
		scale         float64
		here, assumed float64
	}{
		{"sync_s", "us", 1e6, m.Sync, d.Sync},
		{"crowded_sync_s", "us", 1e6, m.CrowdedSync, d.CrowdedSync},
		{"local.latency_s", "us", 1e6, m.Local.Latency, d.Local.Latency},
		{"local.overhead_s", "us", 1e6, m.Local.Overhead, d.Local.Overhead},
		{"local.bytes_per_s", "GB/s", 1e-9, m.Local.Bandwidth, d.Local.Bandwidth},
		{"remote.latency_s", "us", 1e6, m.Remote.Latency, d.Remote.Latency},
		{"remote.overhead_s", "us", 1e6, m.Remote.Overhead, d.Remote.Overhead},
		{"remote.bytes_per_s", "GB/s", 1e-9, m.Remote.Bandwidth, d.Remote.Bandwidth},
		{"copy_bytes_per_s", "GB/s", 1e-9, m.Copy, d.Copy},
		{"reduce_bytes_per_s", "GB/s", 1e-9, m.Reduce, d.Reduce},
	} {
		note := ""
		if !slices.Contains(e.Measured, v.name) {
			note = "these ranks can't show it"
		}
		fmt.Fprintf(tw, "  %s\t%.3g %s\t%.3g %s\t%s\n", v.name, v.here*v.scale, v.unit, v.assumed*v.scale, v.unit, note)
	}
	return tw.Flush()
}
