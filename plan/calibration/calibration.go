package calibration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
)

// Version of the format, and of what is measured. It grows when either changes, or the cost model that the values are
// for.
const Version = 1

// Entry is what was measured once.
type Entry struct {
	Ranks     int          `json:"ranks"`     // of the world that was measured, and that it's for
	Date      string       `json:"date"`      // RFC 3339
	Placement string       `json:"placement"` // how far apart the cores were, see package bench
	Measured  []string     `json:"measured"`  // values of Machine; the others are plan.DefaultMachine's
	Machine   plan.Machine `json:"machine"`
}

// Host is what a file is of.
type Host struct {
	Name    string `json:"name"`
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`   // online
	Kernels string `json:"kernels"` // instruction set of the loops
}

// file is the document.
type file struct {
	Version int     `json:"version"`
	Host    Host    `json:"host"`
	Entries []Entry `json:"entries"` // ascending by ranks
}

// Here describes this host and process.
func Here() Host {
	name, _ := os.Hostname()
	cpu := sys.ReadCPUInfo()
	return Host{Name: name, CPU: cpu.Model, Cores: cpu.Cores, Kernels: kern.Level()}
}

// Path returns the file that a setting means: "on" the one in the user's cache directory, which has the host's name in
// its own; "off" and "" none; anything else is the path itself.
func Path(setting string) (string, error) {
	switch setting {
	case "", "off":
		return "", nil
	case "on":
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("calibration: there is no cache directory: %w", err)
		}
		name := strings.Map(func(r rune) rune {
			if r == '/' || r == 0 {
				return '_'
			}
			return r
		}, Here().Name)
		return filepath.Join(dir, "chorus", "calibration-"+name+".json"), nil
	}
	return setting, nil
}

// ErrUnusable is what errors of Read and Lookup match: there's no calibration, or one that must not be used here.
var ErrUnusable = errors.New("no usable calibration")

// errForeign is the reason not to replace a file.
var errForeign = errors.New("it is not a calibration")

func unusable(path string, why error) error {
	return fmt.Errorf("%w: %s: %w (chorus bench --calibrate measures anew)", ErrUnusable, path, why)
}

// Lookup returns the entry of a file for a world of so many ranks on this host.
func Lookup(path string, ranks int) (Entry, error) {
	all, err := Read(path)
	if err != nil {
		return Entry{}, err
	}
	var known []string
	for _, e := range all {
		if e.Ranks == ranks {
			return e, nil
		}
		known = append(known, fmt.Sprint(e.Ranks))
	}
	return Entry{}, unusable(path, fmt.Errorf("it has nothing for %d ranks, only for %s", ranks, strings.Join(known,
		", ")))
}

// Read returns all entries of a file, ascending by ranks, if it's of this host and in order.
func Read(path string) ([]Entry, error) {
	text, err := sys.ReadRegular(path, mostBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unusable(path, errors.New("there is no such file"))
	}
	if err != nil {
		return nil, unusable(path, err)
	}
	all, err := parse(text, Here())
	if err != nil {
		return nil, unusable(path, err)
	}
	return all, nil
}

const (
	mostBytes = 1 << 20 // of a file
	mostRanks = 1 << 24 // of an entry
)

// parse reads a document that must be of the host.
func parse(text []byte, here Host) ([]Entry, error) {
	if len(text) > mostBytes {
		return nil, fmt.Errorf("it has more than %d bytes", mostBytes)
	}
	var head struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil || head.Version == nil {
		return nil, errForeign
	}
	if *head.Version != Version { // before anything else: other versions may have other fields
		return nil, fmt.Errorf("it has version %d of the format, and this is %d", *head.Version, Version)
	}
	var f file
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if f.Host != here {
		return nil, fmt.Errorf("it was measured on %v, and this is %v", f.Host, here)
	}
	if len(f.Entries) == 0 {
		return nil, errors.New("it is empty")
	}
	for i, e := range f.Entries {
		if e.Ranks < 1 || e.Ranks > mostRanks || i > 0 && e.Ranks <= f.Entries[i-1].Ranks {
			return nil, fmt.Errorf("entry %d is for %d ranks", i, e.Ranks)
		}
		if err := e.Machine.Validate(); err != nil {
			return nil, fmt.Errorf("for %d ranks: %w", e.Ranks, err)
		}
	}
	return f.Entries, nil
}

// String is for people.
func (h Host) String() string {
	return fmt.Sprintf("%s (%s, %d cores, kernels %s)", h.Name, h.CPU, h.Cores, h.Kernels)
}

// Store puts an entry into a file, and replaces one for as many ranks. A calibration that can't be used any more is
// replaced; a file that is none is not.
func Store(path string, e Entry) error {
	if err := e.Machine.Validate(); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	if e.Ranks < 1 || e.Ranks > mostRanks {
		return fmt.Errorf("calibration: of %d ranks", e.Ranks)
	}
	all, err := Read(path)
	if errors.Is(err, errForeign) {
		return fmt.Errorf("calibration: %s is something else and stays as it is", path)
	}
	at, found := slices.BinarySearchFunc(all, e.Ranks, func(e Entry, ranks int) int { return e.Ranks - ranks })
	if found {
		all[at] = e
	} else {
		all = slices.Insert(all, at, e)
	}
	text, err := json.MarshalIndent(file{Version: Version, Host: Here(), Entries: all}, "", " ")
	if err != nil {
		return err
	}
	return replace(path, append(text, '\n'))
}

// replace writes a file beside the old one and then takes its place.
func replace(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}
