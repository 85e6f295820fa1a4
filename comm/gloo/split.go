package gloo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
)

// Split implements backend.Backend. Among ranks of PyTorch it's a call of new_group: every rank of the job makes it,
// members or not, for one group at a time, and nothing is compared. Ranks of Chorus alone agree first, and may make
// several groups at once.
func (g *group) Split(ctx context.Context, name string, list []int, timeout time.Duration,
	hints map[string]string) (backend.Backend, error) {
	at := g.In("split")
	invalid := func(format string, args ...any) (backend.Backend, error) {
		return nil, &backend.InvalidArgumentError{Where: at, Detail: fmt.Sprintf(format, args...)}
	}
	for h := range hints {
		return invalid("unknown hint %q; a split takes none", h)
	}
	var path string
	meet := false // all ranks of the job wait for each other
	switch {
	case g.size == 1 || g.mesh.allChorus:
		offers, _, err := base.Offers(base.Offer{List: list}, g.size, backend.Op{Ctx: ctx, Timeout: timeout},
			func(op *backend.Op) error {
				if err := g.Submit(op); err != nil {
					return err
				}
				return g.Wait(op)
			})
		if err == nil {
			err = g.Agreed(offers)
		}
		if err != nil {
			return nil, err
		}
		g.splits++
		if len(list) > 0 {
			path = fmt.Sprintf("%s/chorus/%d.%d/", g.path, g.splits, slices.Min(list))
		}
	case g.path != g.job.root:
		detail := "PyTorch makes groups of the default group's ranks only: split that"
		return nil, &backend.UnsupportedError{Where: at, Detail: detail}
	case g.path == "":
		detail := "ranks of PyTorch number the groups of init_process_group alone, not those of a store of one's own"
		return nil, &backend.UnsupportedError{Where: at, Detail: detail}
	case !slices.IsSorted(list):
		return invalid("the ranks of PyTorch's groups are in ascending order, %v are not", list)
	default:
		path = g.job.newGroup()
		meet = g.job.old
	}
	if len(list) == 0 && !meet {
		return nil, nil
	}
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var child *group
	var err error
	if len(list) > 0 {
		child, err = g.job.group(limited, name, path, slices.Index(list, g.rank), len(list))
	}
	if err == nil && meet {
		if err = g.job.meet(limited, child); err != nil && child != nil {
			child.Finalize(ctx)
		}
	}
	if absent, ok := errors.AsType[*bootstrap.MissingRanksError](err); ok {
		missing := make([]int, len(absent.Missing))
		for i, r := range absent.Missing {
			missing[i] = list[r]
		}
		a := backend.Attendance{Elapsed: time.Since(start), Missing: missing}
		return nil, &backend.TimeoutError{Where: at, Attendance: a}
	}
	if err != nil && ctx.Err() != nil {
		return nil, &backend.CanceledError{Where: at, Err: context.Cause(ctx)}
	}
	if err != nil {
		return nil, &backend.InternalError{Where: at, Err: err}
	}
	if child == nil { // which is no backend.Backend that is nil
		return nil, nil
	}
	return child, nil
}
