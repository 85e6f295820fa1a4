package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	mpi "github.com/chorus-comms/chorus/comm/mpi/abi"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/config"
	gpu "github.com/chorus-comms/chorus/device/gpu/abi"
	opencl "github.com/chorus-comms/chorus/device/opencl/abi"
)

// diagnosis is all that chorus doctor finds.
type diagnosis struct {
	Version  version       `json:"version"`
	Host     hostFacts     `json:"host"`
	CPU      cpuFacts      `json:"cpu"`
	Memory   memoryFacts   `json:"memory"`
	Shared   sharedFacts   `json:"shared_memory"`
	Network  networkFacts  `json:"network"`
	Launcher launcherFacts `json:"launcher"`
	Settings []setting     `json:"settings"`

	Libraries []libraryFacts `json:"libraries"`
	Drivers   []libraryFacts `json:"drivers"`
	UCX       ucxFacts       `json:"ucx"`

	Calibration calibrationFacts `json:"calibration"`

	// Problems prevent Chorus from working here, Warnings from working well.
	Problems []string `json:"problems"`
	Warnings []string `json:"warnings"`
}

// libraryFacts is a library of a GPU vendor that one of the backends, or a driver of devices, could use, as its file
// says.
type libraryFacts struct {
	Backend string   `json:"backend,omitempty"`
	Device  string   `json:"device,omitempty"`
	Path    string   `json:"path"`
	Version string   `json:"version,omitempty"`
	Has     []string `json:"has,omitempty"`
	Lacks   []string `json:"lacks,omitempty"` // with the first release that has it
	Error   string   `json:"error,omitempty"`
}

// libraries looks for them, without loading any.
func (d *diagnosis) libraries() {
	cfg, _ := config.Load(nil) // errors are the settings'
	d.Libraries = []libraryFacts{}
	for i := range abi.Families {
		f := &abi.Families[i]
		for _, found := range f.Find(cfg.NCCLLibrary) {
			l := libraryFacts{Backend: f.Name, Path: found.Path, Version: found.Version, Has: found.Has, Lacks: found.Lacks}
			if found.Err != nil {
				l.Error = found.Err.Error()
			}
			d.Libraries = append(d.Libraries, l)
		}
	}
	for _, found := range mpi.Find(cfg.MPILibrary, os.Getenv) {
		l := libraryFacts{Backend: "mpi", Path: found.Path}
		if found.Err != nil {
			l.Error = found.Err.Error()
		} else {
			l.Has = []string{"the interface of " + found.Family.Name}
		}
		d.Libraries = append(d.Libraries, l)
	}
	d.Drivers = []libraryFacts{}
	for i := range gpu.Families {
		f := &gpu.Families[i]
		for _, found := range f.Find() {
			l := libraryFacts{Device: f.Name, Path: found.Path, Has: found.Has, Lacks: found.Lacks}
			if found.Err != nil {
				l.Error = found.Err.Error()
			}
			d.Drivers = append(d.Drivers, l)
		}
	}
	for _, found := range opencl.Find(cfg.OpenCLLibrary) {
		l := libraryFacts{Device: "opencl", Path: found.Path, Has: found.Has, Lacks: found.Lacks}
		if found.Err != nil {
			l.Error = found.Err.Error()
		} else if !found.Loader {
			l.Has = []string{"a driver"}
		}
		d.Drivers = append(d.Drivers, l)
	}
}

// setting is a variable and what is wrong with it.
type setting struct {
	config.Var
	Error string `json:"error,omitempty"`
}

func newDoctorCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine this machine and show every setting",
		Long: `Show what this machine offers to Chorus: cores, memory, ways of sharing memory between processes, network
interfaces, the launcher around this process if there is one, and every environment variable that Chorus reads, with
its value and where that comes from.

Nothing is assumed where it can be tried: memory is shared, and copied between processes, to see whether that works.
The exit status is 1 if something prevents Chorus from working.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := diagnose(cmd.Context())
			out := cmd.OutOrStdout()
			if asJSON {
				enc := json.NewEncoder(out)
				enc.SetIndent("", "  ")
				if err := enc.Encode(d); err != nil {
					return err
				}
			} else if err := d.print(out); err != nil {
				return err
			}
			if len(d.Problems) > 0 {
				return errReported
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// settings describes every variable; a bad value is a problem, because programs refuse to start with it.
func (d *diagnosis) settings() {
	cfg, _ := config.Load(nil) // each error is in its variable
	for _, v := range cfg.Vars() {
		s := setting{Var: v}
		if e := (*config.Error)(nil); errors.As(v.Err, &e) {
			s.Error = e.Reason
			d.Problems = append(d.Problems, e.Error())
		}
		d.Settings = append(d.Settings, s)
	}
	names, nearest := config.Unknown(os.Environ())
	for i, name := range names {
		if nearest[i] != "" {
			d.warn("nothing reads %s; there is %s", name, nearest[i])
		} else {
			d.warn("nothing reads %s", name)
		}
	}
}

func (d *diagnosis) problem(format string, args ...any) {
	d.Problems = append(d.Problems, fmt.Sprintf(format, args...))
}

func (d *diagnosis) warn(format string, args ...any) {
	d.Warnings = append(d.Warnings, fmt.Sprintf(format, args...))
}

// print shows the diagnosis to people.
func (d *diagnosis) print(w io.Writer) error {
	p := &page{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	p.section(d.Version.String())
	d.printMachine(p)
	d.printLibraries(p)
	p.section("calibration")
	p.row("in use", "%s", d.Calibration.use())
	p.row("file", "%s", d.Calibration.File)
	for _, e := range d.Calibration.Entries {
		p.row(fmt.Sprintf("%d ranks", e.Ranks), "%s, cores %s, %d values measured", e.Date, e.Placement, len(e.Measured))
	}

	p.section("settings")
	for _, s := range d.Settings {
		p.row(s.Name, "%q\t%s\t%s", s.Value, s.Origin, s.Doc)
	}
	for _, text := range d.Warnings {
		fmt.Fprintf(p, "warning: %s\n", text)
	}
	for _, text := range d.Problems {
		fmt.Fprintf(p, "problem: %s\n", text)
	}
	if len(d.Problems) == 0 {
		p.section("Chorus can work here")
	}
	return p.Flush()
}

// page is what doctor prints: sections of rows.
type page struct{ *tabwriter.Writer }

func (p *page) section(name string) { fmt.Fprintf(p, "%s\n", name) }

func (p *page) row(name, format string, args ...any) {
	fmt.Fprintf(p, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
}

// printMachine prints what this host is and has.
func (d *diagnosis) printMachine(p *page) {
	p.section("host")
	p.row("name", "%s", d.Host.Name)
	p.row("kernel", "%s", d.Host.Kernel)
	p.row("identity", "%s", d.Host.ID)
	p.row("launcher", "%s", d.Launcher)

	p.section("processor")
	p.row("model", "%s", d.CPU.Model)
	p.row("cores", "%d online, %d usable by this process (%s)", d.CPU.Online, d.CPU.Usable, d.CPU.Affinity)
	p.row("cgroup limit", "%s", orNone(d.CPU.CgroupCores > 0, "%.4g cores", d.CPU.CgroupCores))
	p.row("kernels", "%s (available: %s)", d.CPU.Kernels, strings.Join(d.CPU.KernelsAvailable, ", "))
	for _, n := range d.CPU.NUMA {
		p.row(fmt.Sprintf("NUMA node %d", n.ID), "cores %s, %s", n.Cores, bytesText(n.MemoryBytes))
	}

	p.section("memory")
	p.row("total", "%s, %s available", bytesText(d.Memory.TotalBytes), bytesText(d.Memory.AvailableBytes))
	p.row("cgroup limit", "%s", orNone(d.Memory.CgroupBytes > 0, "%s", bytesText(d.Memory.CgroupBytes)))
	p.row("huge pages", "%d of %s, %d free; transparent for shared memory: %s",
		d.Memory.HugePages, bytesText(d.Memory.HugePageBytes), d.Memory.HugePagesFree, d.Memory.TransparentShared)

	p.section("shared memory")
	p.row("memory files", "%s", d.Shared.MemoryFile)
	p.row("with huge pages", "%s", d.Shared.HugeMemoryFile)
	p.row("copy across processes", "%s", d.Shared.CrossProcessCopy)
	p.row("Yama scope", "%s", d.Shared.YamaScope)

	p.section("network")
	p.row("loopback", "%s", d.Network.Loopback)
	for _, i := range d.Network.Interfaces {
		addresses := strings.Join(i.Addresses, ", ")
		if addresses == "" {
			addresses = "no address"
		}
		state := ""
		if !i.Up {
			state = ", down"
		}
		p.row(i.Name, "%s, MTU %d%s", addresses, i.MTU, state)
	}
}

// printLibraries prints which libraries of vendors were found, and what they have.
func (d *diagnosis) printLibraries(p *page) {
	p.section("libraries")
	if len(d.Libraries) == 0 {
		p.row("NCCL, RCCL, MPI", "none found (CHORUS_NCCL_LIBRARY and CHORUS_MPI_LIBRARY name one)")
	}
	for _, l := range d.Libraries {
		if l.Error != "" {
			p.row(l.Backend, "%s: %s", l.Path, l.Error)
			continue
		}
		if l.Lacks == nil { // MPI, whose file doesn't say more
			p.row(l.Backend, "%s: %s", l.Path, strings.Join(l.Has, ", "))
			continue
		}
		p.row(l.Backend, "%s: %s", l.Path, orNone(l.Version != "", "version %s", l.Version))
		p.row("", "has %s", strings.Join(l.Has, ", "))
		p.row("", "lacks %s", strings.Join(l.Lacks, ", "))
	}

	p.section("drivers of GPUs")
	for i := range gpu.Families {
		f := &gpu.Families[i]
		if !slices.ContainsFunc(d.Drivers, func(l libraryFacts) bool { return l.Device == f.Name }) {
			p.row(f.Name, "none found of %s", strings.Join(f.Places, ", "))
		}
	}
	if !slices.ContainsFunc(d.Drivers, func(l libraryFacts) bool { return l.Device == "opencl" }) {
		p.row("opencl", "none found of %s, and no driver in a Python package (CHORUS_OPENCL_LIBRARY names one)",
			strings.Join(opencl.Names, ", "))
	}
	for _, l := range d.Drivers {
		if l.Error != "" {
			p.row(l.Device, "%s: %s", l.Path, l.Error)
			continue
		}
		p.row(l.Device, "%s: has %s", l.Path, strings.Join(l.Has, ", "))
		if len(l.Lacks) > 0 {
			p.row("", "lacks %s", strings.Join(l.Lacks, ", "))
		}
	}
	d.printUCX(p)
}

func orNone(ok bool, format string, args ...any) string {
	if !ok {
		return "none"
	}
	return fmt.Sprintf(format, args...)
}

// bytesText shows a size in the largest unit that it fills.
func bytesText(n int64) string {
	v, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	return fmt.Sprintf("%.4g %s", v, unit)
}
