package mpi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	env "github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/internal/wire"
)

// Name is the name under which the backend is registered.
const Name = "mpi"

func init() { backend.Register(Name, open) }

// The hints of a communicator.
const (
	libraryHint = "library" // the file; it wins over CHORUS_MPI_LIBRARY
	threadsHint = "threads" // what to start MPI with: funneled, serialized, or multiple, which is the default
)

// card is what ranks tell each other before there is a link. It travels as JSON.
type card struct {
	Rank    int    `json:"rank"` // in MPI_COMM_WORLD
	Size    int    `json:"size"` // of it
	Host    string `json:"host"`
	Library string `json:"library"`
	Level   int    `json:"level"`
	Error   string `json:"error,omitempty"` // why this rank can't take part
}

func open(ctx context.Context, c backend.Config) (backend.Backend, error) {
	at := backend.Where{Comm: c.Name, Reporter: c.Rank, Op: "new"}
	level := multiple
	cfg, err := env.Load(nil)
	if err != nil {
		return nil, err
	}
	place := cfg.MPILibrary
	for name, value := range c.Hints {
		switch {
		case name == libraryHint:
			place = value
		case name == threadsHint && slices.Contains(levels[funneled:], value):
			level = slices.Index(levels[:], value)
		case name == threadsHint:
			return nil, &backend.InvalidArgumentError{Where: at, Detail: fmt.Sprintf("%s=%q is none of %s", name, value,
				strings.Join(levels[funneled:], ", "))}
		default:
			return nil, &backend.InvalidArgumentError{Where: at, Detail: fmt.Sprintf("unknown hint %s=%q; %s takes %s and %s",
				name, value, Name, libraryHint, threadsHint)}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	lib, err := acquire(ctx, place, level)
	mine := card{}
	if err == nil {
		mine = card{Rank: lib.rank, Size: lib.size, Library: lib.version, Level: int(lib.level)}
		mine.Host, err = bootstrap.HostID()
	}
	if err != nil {
		mine.Error = err.Error()
	}
	l, err := connect(ctx, &c, at, lib, mine)
	if err != nil {
		if lib != nil {
			lib.abandon()
		}
		return nil, err
	}
	caps := Capabilities()
	caps.LocalSize = l.onHost
	return base.NewRunner(c, base.RunnerConfig{Fabric: l, Own: l.collective, Capabilities: caps}), nil
}

// Capabilities are those of every communicator of this backend, without LocalSize.
func Capabilities() backend.Capabilities {
	return backend.Capabilities{Name: Name, Devices: []string{"cpu"}, Abort: true, AnySource: true, Tags: true,
		Windows: true}
}

// connect checks that all ranks are ranks of one MPI_COMM_WORLD, and makes their communicator.
func connect(ctx context.Context, c *backend.Config, at backend.Where, lib *library, mine card) (*link, error) {
	payload, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := c.Exchange(ctx, payload)
	if err != nil {
		if mine.Error != "" {
			return nil, &backend.UnsupportedError{Where: at, Detail: mine.Error}
		}
		return nil, err
	}
	ranks, onHost := make([]int, c.Size), 0
	for r, text := range all {
		var k card
		if err := json.Unmarshal(text, &k); err != nil {
			return nil, fmt.Errorf("what rank %d says of its MPI: %w", r, err)
		}
		var detail string
		switch {
		case k.Error != "":
			detail = fmt.Sprintf("rank %d: %s", r, k.Error)
		case mine.Error != "":
			detail = mine.Error
		case k.Library != mine.Library:
			detail = fmt.Sprintf("rank %d has %s, and this one %s", r, k.Library, mine.Library)
		case k.Size != mine.Size || k.Size < c.Size || slices.Contains(ranks[:r], k.Rank):
			detail = fmt.Sprintf("%v has started rank %d as rank %d of a world of %d, and the job has %d: the library isn't "+
				"that of the launcher. CHORUS_MPI_LIBRARY names another one", lib, r, k.Rank, k.Size, c.Size)
		}
		if detail != "" {
			return nil, &backend.UnsupportedError{Where: at, Detail: detail}
		}
		if ranks[r] = k.Rank; k.Host == mine.Host {
			onHost++
		}
		lib.exec(func() { lib.common = min(lib.common, k.Level) })
	}
	var comm uintptr
	err = lib.blocking(ctx, func() (err error) {
		comm, err = lib.communicator(lib.world, ranks, int(wire.HashInts(ranks)%uint64(lib.maxTag)))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: the ranks' communicator: %w", at.Comm, err)
	}
	return newLink(lib, comm, c.Rank, c.Size, onHost)
}
