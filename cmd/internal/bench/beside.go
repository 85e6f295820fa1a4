package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/chorus-comms/chorus/comm"
)

// Pair is one size of an operation on two communicators, measured in turns.
type Pair struct {
	One, Other Row // of the median turn of each
	// Share is the bandwidth of Other by that of One: the median of the turns', each of which is measured within a moment.
	// Low and High are the quartiles.
	Share, Low, High float64
}

// Beside measures an operation on two communicators of the same ranks in turns, such as the host's and a device's. Both
// then meet the same load of the machine and the same placement of ranks. Config.Time is the time of one turn. It's
// collective, like Run.
func Beside(ctx context.Context, one, other *comm.Comm, g Config, turns int) ([]Pair, error) {
	if turns < 1 {
		return nil, fmt.Errorf("bench: %d turns", turns)
	}
	var runners [2]*Runner
	for i, c := range []*comm.Comm{one, other} {
		r, err := NewRunner(ctx, c, g)
		if err != nil {
			return nil, err
		}
		defer r.Free()
		r.blocks = true // the mean of a block for both: single rounds would be without what happens seldom
		runners[i] = r
	}
	inPlace := runners[0].cfg.InPlace
	if inPlace == runners[0].cfg.OutOfPlace {
		return nil, errors.New("bench: turns of one form, in place or not")
	}
	var pairs []Pair
	for _, size := range runners[0].sizes {
		var rows [2][]Row
		shares := make([]float64, turns)
		for t := range turns {
			for i := range runners {
				k := (i + t) % 2 // they take turns at going first
				row, err := runners[k].Row(size, inPlace, 0, 0)
				if err != nil {
					return pairs, err
				}
				rows[k] = append(rows[k], row)
			}
			shares[t] = rows[0][t].MedianUS / rows[1][t].MedianUS
		}
		slices.Sort(shares)
		p := Pair{One: middle(rows[0]), Other: middle(rows[1]),
			Share: digits(median(shares)), Low: digits(percentile(shares, 25)), High: digits(percentile(shares, 75))}
		pairs = append(pairs, p)
	}
	return pairs, nil
}

// middle is the row with the median time, and the wrong elements of all.
func middle(rows []Row) Row {
	slices.SortFunc(rows, func(a, b Row) int {
		if a.MedianUS < b.MedianUS {
			return -1
		}
		return 1
	})
	m := rows[len(rows)/2]
	m.Errors = 0
	for _, r := range rows {
		m.Errors += r.Errors
	}
	return m
}

// WritePairs writes a table.
func WritePairs(w io.Writer, pairs []Pair) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, p := range pairs {
		if i == 0 {
			fmt.Fprintf(tw, "bytes\t%s (GB/s)\t%s (GB/s)\tshare\tquartiles\twrong\t\n", p.One.Device, p.Other.Device)
		}
		fmt.Fprintf(tw, "%d\t%.2f\t%.2f\t%.2f\t%.2f to %.2f\t%d\t\n",
			p.One.Bytes, p.One.BusBW, p.Other.BusBW, p.Share, p.Low, p.High, p.One.Errors+p.Other.Errors)
	}
	return tw.Flush()
}
