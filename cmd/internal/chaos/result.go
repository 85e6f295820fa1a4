package chaos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Result is what came of a campaign. Hangs, WrongResults and Misnamed count rounds.
type Result struct {
	Mode         Mode   `json:"mode"`
	Seed         uint64 `json:"seed"`
	Rounds       int    `json:"rounds"`
	Faults       int    `json:"faults"` // rounds whose fault has happened
	Hangs        int    `json:"hangs"`  // a rank did not return, or its process crashed
	WrongResults int    `json:"wrong_results"`
	// An error named another rank than the culprit, or none, or there was none, or one too many.
	Misnamed  int     `json:"misnamed"`
	Regrouped int     `json:"regrouped"` // rounds in which those that were left made a new world
	DetectMS  Spread  `json:"detect_ms"` // from the fault to the first error of each rank that got one
	Seconds   float64 `json:"seconds"`
	By        []*Row  `json:"by"`
	// Findings are the rounds that count in one of the three.
	Findings []Finding `json:"findings"`

	detect  []time.Duration
	command string
}

// Spread sums up times in milliseconds; virtual ones if the rounds were.
type Spread struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// Row is about one kind of fault on one fabric.
type Row struct {
	Fault        FaultKind `json:"fault"`
	Fabric       string    `json:"fabric"`
	Rounds       int       `json:"rounds"`
	Faults       int       `json:"faults"`
	Hangs        int       `json:"hangs"`
	WrongResults int       `json:"wrong_results"`
	Misnamed     int       `json:"misnamed"`
	Samples      int       `json:"samples"` // errors whose time was taken
	DetectMS     Spread    `json:"detect_ms"`
	// Slowest is the round in which a rank took longest to get an error.
	Slowest *Finding `json:"slowest,omitempty"`

	detect []time.Duration
	most   time.Duration
}

// Finding is a round that is to be looked at.
type Finding struct {
	Seed         uint64    `json:"seed"`
	Replay       string    `json:"replay"` // the command that runs this round again
	Fault        Fault     `json:"fault"`
	Fabric       string    `json:"fabric"`
	Hosts        []int     `json:"hosts"`
	Comms        [][]int   `json:"comms"`
	Steps        []string  `json:"steps"`
	Hangs        []string  `json:"hangs,omitempty"`
	WrongResults []string  `json:"wrong_results,omitempty"`
	Misnamed     []string  `json:"misnamed,omitempty"`
	Stuck        string    `json:"stuck,omitempty"` // what the goroutines did
	Reports      []*Report `json:"reports"`
}

func newResult(c Campaign) *Result { return &Result{Mode: c.Mode, Seed: c.Seed, command: c.options()} }

// options are the flags that a replay needs beside the seed.
func (c Campaign) options() string {
	s := " --" + string(c.Mode)
	if c.Faults != nil {
		names := make([]string, len(c.Faults))
		for i, f := range c.Faults {
			names[i] = string(f)
		}
		s += " --faults " + strings.Join(names, ",")
	}
	if c.Mode == Real && c.Fabrics != nil {
		s += " --fabrics " + strings.Join(c.Fabrics, ",")
	}
	if c.Load > 0 {
		s += fmt.Sprintf(" --load %d", c.Load)
	}
	return s
}

func (r *Result) add(o *Outcome) {
	p := o.Program
	i := slices.IndexFunc(r.By, func(x *Row) bool { return x.Fault == p.Fault.Kind && x.Fabric == p.Fabric })
	if i < 0 {
		i = len(r.By)
		r.By = append(r.By, &Row{Fault: p.Fault.Kind, Fabric: p.Fabric})
	}
	row := r.By[i]
	count := func(n int, total, own *int) {
		if n > 0 {
			*total++
			*own++
		}
	}
	count(1, &r.Rounds, &row.Rounds)
	if o.Fired && p.Fault.Kind != None {
		count(1, &r.Faults, &row.Faults)
	}
	if slices.ContainsFunc(o.Reports,
		func(x *Report) bool { return x != nil && x.Regrouped != nil && x.Regrouped.Kind == "" }) {
		r.Regrouped++
	}
	count(len(o.Hangs), &r.Hangs, &row.Hangs)
	count(len(o.Wrong), &r.WrongResults, &row.WrongResults)
	count(len(o.Misnamed), &r.Misnamed, &row.Misnamed)
	r.detect = append(r.detect, o.Detect...)
	row.detect = append(row.detect, o.Detect...)
	if o.Bad() {
		r.Findings = append(r.Findings, r.finding(o))
	}
	if len(o.Detect) > 0 && slices.Max(o.Detect) > row.most {
		x := r.finding(o)
		row.most, row.Slowest = slices.Max(o.Detect), &x
	}
}

func (r *Result) finding(o *Outcome) Finding {
	p := o.Program
	var comms [][]int
	for _, g := range p.Comms {
		comms = append(comms, g.Members)
	}
	var steps []string
	for _, s := range p.Steps {
		steps = append(steps, s.String())
	}
	return Finding{Hosts: p.Hosts, Comms: comms, Steps: steps, Seed: p.Seed,
		Replay: fmt.Sprintf("go run ./cmd/chorus chaos%s --rounds 1 --seed %d", r.command, p.Seed),
		Fault:  p.Fault, Fabric: p.Fabric, Hangs: o.Hangs, WrongResults: o.Wrong, Misnamed: o.Misnamed, Stuck: o.Stuck,
		Reports: o.Reports}
}

// end sums up.
func (r *Result) end(took time.Duration) {
	r.Seconds = took.Seconds()
	r.DetectMS = spread(r.detect)
	for _, row := range r.By {
		row.Samples, row.DetectMS = len(row.detect), spread(row.detect)
	}
	slices.SortFunc(r.By, func(a, b *Row) int {
		return cmp.Or(cmp.Compare(slices.Index(FaultKinds, a.Fault), slices.Index(FaultKinds, b.Fault)), cmp.Compare(a.Fabric,
			b.Fabric))
	})
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
}

func spread(ds []time.Duration) Spread {
	if len(ds) == 0 {
		return Spread{}
	}
	slices.Sort(ds)
	at := func(q float64) float64 {
		i := min(len(ds)-1, int(math.Ceil(q*float64(len(ds))))-1)
		return math.Round(float64(ds[max(i, 0)])/1e3) / 1e3
	}
	return Spread{Median: at(0.5), P99: at(0.99), Max: at(1)}
}

// Good reports whether the campaign has found nothing.
func (r *Result) Good() bool { return r.Hangs+r.WrongResults+r.Misnamed == 0 }

// WriteJSON writes the result as one document.
func (r *Result) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes the result for people.
func (r *Result) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "fault\tfabric\trounds\tfaults\thangs\twrong\tmisnamed\tdetected: median\tp99\tmax ms\t")
	for _, x := range r.By {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t", x.Fault, x.Fabric, x.Rounds, x.Faults, x.Hangs, x.WrongResults,
			x.Misnamed)
		if x.Samples > 0 {
			fmt.Fprintf(t, "%.3g\t%.3g\t%.3g\t\n", x.DetectMS.Median, x.DetectMS.P99, x.DetectMS.Max)
		} else {
			fmt.Fprint(t, "\t\t\t\n")
		}
	}
	fmt.Fprintf(t, "all\t\t%d\t%d\t%d\t%d\t%d\t%.3g\t%.3g\t%.3g\t\n", r.Rounds, r.Faults, r.Hangs, r.WrongResults,
		r.Misnamed, r.DetectMS.Median, r.DetectMS.P99, r.DetectMS.Max)
	if err := t.Flush(); err != nil {
		return err
	}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "\n%s on %s: %s\n", f.Fault.Kind, f.Fabric, f.Replay)
		for _, list := range [][]string{f.Hangs, f.WrongResults, f.Misnamed} {
			for _, line := range list[:min(len(list), 4)] {
				fmt.Fprintf(w, "  %s\n", line)
			}
		}
		if f.Stuck != "" {
			lines := strings.Split(f.Stuck, "\n")
			fmt.Fprintf(w, "  %s\n", strings.Join(lines[:min(len(lines), 12)], "\n  "))
		}
	}
	return nil
}
