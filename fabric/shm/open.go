package shm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/ranklist"
)

// Name is the name under which the fabric is registered.
const Name = "shm"

func init() {
	fabric.Register(Name, func(ctx context.Context, c fabric.Config) (fabric.Fabric, error) { return Open(ctx, c) })
}

// card is what a rank tells all others before there are links.
type card struct {
	Host    string
	Offer   []byte // of its Endpoint
	Failure string // why it has none
}

// Open joins this rank to the others, all of which must be on its host.
func Open(ctx context.Context, c fabric.Config) (*Fabric, error) {
	if c.Timeout == 0 {
		c.Timeout = fabric.DefaultTimeout
	}
	e, err := Listen(c)
	mine := card{Host: c.HostID}
	if err != nil {
		mine.Failure = err.Error()
	} else {
		defer e.Close()
		mine.Offer = e.Offer()
	}
	payload, jerr := json.Marshal(mine)
	if jerr != nil {
		return nil, jerr
	}
	all := [][]byte{payload}
	if c.Size > 1 {
		var xerr error
		if all, xerr = c.Exchange(ctx, payload); xerr != nil {
			return nil, errors.Join(err, fmt.Errorf("shm: exchange of addresses: %w", xerr))
		}
	}
	if err != nil {
		return nil, err
	}
	offers, err := readCards(c, all)
	if err != nil {
		return nil, err
	}
	locals := make([]int, c.Size)
	for r := range locals {
		locals[r] = r
	}
	return e.Join(ctx, locals, offers, fabric.NewMatcher(c.Size))
}

func readCards(c fabric.Config, all [][]byte) ([][]byte, error) {
	if len(all) != c.Size {
		return nil, fmt.Errorf("shm: the exchange returned %d cards for %d ranks", len(all), c.Size)
	}
	offers := make([][]byte, c.Size)
	var elsewhere []int
	var failed []string
	for r, b := range all {
		var k card
		if err := json.Unmarshal(b, &k); err != nil {
			return nil, fmt.Errorf("shm: the card of rank %d: %w", r, err)
		}
		if k.Host != c.HostID {
			elsewhere = append(elsewhere, r)
		}
		if k.Failure != "" {
			failed = append(failed, fmt.Sprintf("rank %d: %s", r, k.Failure))
		}
		offers[r] = k.Offer
	}
	if len(elsewhere) > 0 {
		return nil, fmt.Errorf("shm: all ranks must be on one host; not on rank %d's are %s", c.Rank, ranklist.Named(elsewhere))
	}
	if len(failed) > 0 {
		return nil, fmt.Errorf("shm: %s", strings.Join(failed, "; "))
	}
	return offers, nil
}
