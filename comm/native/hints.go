package native

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
)

// settings are a communicator's hints, parsed.
type settings struct {
	fabric        string
	fabricBy      string // what names it, for errors
	host          string
	algo          string
	chunkBytes    int
	stageBytes    int
	calibration   string // off, on or a path
	prefer        preferences
	fabricOptions map[string]string
}

// preferences choose among ways to do the same. A choice that's empty is this package's own, by cost or by measuring.
type preferences struct {
	mapped string // on, off
	slots  string // on, off
	stores string // cached, bypass
}

// choice is a hint that is a preference. The first of its values leaves the choice to this package.
type choice struct {
	name   string
	values []string
}

func (c *choice) check(v string) error {
	if slices.Contains(c.values, v) {
		return nil
	}
	return fmt.Errorf("hint %s=%q: want %s", c.name, v, strings.Join(c.values, ", "))
}

var choices = [...]choice{
	{"mapped", []string{"auto", "on", "off"}},
	{"slots", []string{"auto", "on", "off"}},
	{"stores", []string{"auto", "cached", "bypass"}},
}

// at returns the preference of one of the choices.
func (p *preferences) at(choice int) *string {
	return [...]*string{&p.mapped, &p.slots, &p.stores}[choice]
}

// fill takes from hints the preferences that they state.
func (p *preferences) fill(hints map[string]string) error {
	for i := range choices {
		c := &choices[i]
		v, ok := hints[c.name]
		if !ok {
			continue
		}
		if err := c.check(v); err != nil {
			return err
		}
		if v == c.values[0] {
			v = ""
		}
		*p.at(i) = v
	}
	return nil
}

// parseHints reads a communicator's hints. An unknown one is an error, for a
// hint that does nothing is a mistake that costs its author an afternoon.
func parseHints(hints map[string]string) (settings, error) {
	s := settings{fabricOptions: map[string]string{}}
	names := make([]string, 0, len(hints))
	for k := range hints {
		names = append(names, k)
	}
	sort.Strings(names)
	var err error
	for _, k := range names {
		v := hints[k]
		switch k {
		case "fabric":
			s.fabric = v
		case "host_id":
			s.host = v
		case "algorithm":
			s.algo = v
		case "calibration":
			s.calibration = v
		case "mapped", "slots", "stores":
			// preferences: taken together below
		case "chunk_bytes":
			s.chunkBytes, err = positive(k, v)
		case "stage_bytes":
			s.stageBytes, err = positive(k, v)
		default:
			name, ok := strings.CutPrefix(k, "fabric.")
			if !ok {
				return s, fmt.Errorf("unknown hint %q; known are fabric, host_id, calibration, algorithm, chunk_bytes, stage_bytes, mapped, slots, stores and fabric.<option>", k)
			}
			s.fabricOptions[name] = v
		}
		if err != nil {
			return s, err
		}
	}
	return s, s.prefer.fill(hints)
}

// minStage is the least stage that a rank offers, in bytes.
const minStage = 4096

// maxBytes is more than a chunk, or a stage, has.
const maxBytes = 1 << 40

func positive(name, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxBytes {
		return 0, fmt.Errorf("hint %s=%q: want a number from 1 to %d", name, value, maxBytes)
	}
	return n, nil
}

// opHints are the hints that one operation may have.
func opHints() backend.OpHints {
	hints := backend.OpHints{
		{Name: "algorithm", Check: func(v string) error {
			if err := plan.CheckHint(v); err != nil {
				return fmt.Errorf("hint algorithm=%q: %w", v, err)
			}
			return nil
		}},
		{Name: "chunk_bytes", Check: func(v string) error { _, err := positive("chunk_bytes", v); return err }},
	}
	for i := range choices {
		c := &choices[i]
		hints = append(hints, backend.OpHint{Name: c.name, Check: c.check})
	}
	return hints
}

// fillFrom takes what no hint said from the environment.
func (s *settings) fillFrom(c *config.Config) {
	switch {
	case s.fabric != "":
		s.fabricBy = "hint fabric"
	case c.Fabric != "":
		s.fabric, s.fabricBy = c.Fabric, "CHORUS_FABRIC"
	}
	if s.calibration == "" {
		s.calibration = c.Calibration
	}
	if s.stageBytes == 0 {
		s.stageBytes = c.SHMStageBytes
	}
	s.stageBytes = max(s.stageBytes, minStage)
}

// checkKernels refuses an environment that asks for reduction loops which this processor lacks.
func checkKernels(c *config.Config) error {
	name := string(c.Kernels)
	if c.Kernels != config.KernelsAuto && !slices.Contains(kern.Levels(), name) {
		return fmt.Errorf("CHORUS_KERNELS=%s: this processor has %v", name, kern.Levels())
	}
	return nil
}

// tuning is what hints set for one operation. A group has each but once, so that pointers to equal ones are equal.
type tuning struct {
	algo   string
	chunk  int
	prefer preferences
}

// tunings are a group's, by value, and the one that the last hints meant.
type tunings struct {
	plain  *tuning // without hints of the operation
	all    map[tuning]*tuning
	hints  map[string]string // of the last operation that had some, which comm never modifies
	hinted *tuning           // what they meant
}

// tune merges an operation's hints with the communicator's.
func (g *group) tune(op *backend.Op) (*tuning, error) {
	ts := &g.tunings
	if op.Hints == nil {
		if ts.plain == nil {
			ts.plain = ts.intern(tuning{algo: g.settings.algo, chunk: g.settings.chunkBytes, prefer: g.settings.prefer})
		}
		return ts.plain, nil
	}
	if ts.hinted != nil && sameMap(op.Hints, ts.hints) {
		return ts.hinted, nil
	}
	t, err := g.settings.merge(op.Hints)
	if err != nil {
		return nil, err
	}
	ts.hints, ts.hinted = op.Hints, ts.intern(t)
	return ts.hinted, nil
}

func (ts *tunings) intern(t tuning) *tuning {
	if known := ts.all[t]; known != nil {
		return known
	}
	if ts.all == nil {
		ts.all = map[tuning]*tuning{}
	}
	ts.all[t] = &t
	return &t
}

// prune forgets the tunings by which no program is found any more.
func (ts *tunings) prune(used map[shape]*compiled) {
	kept := map[tuning]*tuning{}
	for _, t := range []*tuning{ts.plain, ts.hinted} {
		if t != nil {
			kept[*t] = t
		}
	}
	for key := range used {
		kept[*key.tuned] = key.tuned
	}
	ts.all = kept
}

// sameMap reports whether two maps are one.
func sameMap(a, b map[string]string) bool {
	return *(*unsafe.Pointer)(unsafe.Pointer(&a)) == *(*unsafe.Pointer)(unsafe.Pointer(&b))
}

func (s *settings) merge(hints map[string]string) (tuning, error) {
	t := tuning{algo: cmp.Or(hints["algorithm"], s.algo), chunk: s.chunkBytes, prefer: s.prefer}
	if err := t.prefer.fill(hints); err != nil {
		return t, err
	}
	if v, ok := hints["chunk_bytes"]; ok {
		n, err := positive("chunk_bytes", v)
		if err != nil {
			return t, err
		}
		t.chunk = n
	}
	return t, nil
}

// hash condenses what the ranks must have in common, which is all but how each of them stores; 0 if no hint was given.
func (t *tuning) hash() uint64 {
	if t.algo == "" && t.chunk == 0 && t.prefer.mapped == "" && t.prefer.slots == "" {
		return 0
	}
	h := wire.HashStart
	for _, text := range [...]string{t.algo, t.prefer.mapped, t.prefer.slots} {
		for i := range len(text) {
			h = wire.HashAdd(h, uint64(text[i]))
		}
		h = wire.HashAdd(h, uint64(len(text)))
	}
	return wire.HashAdd(h, uint64(t.chunk))
}
