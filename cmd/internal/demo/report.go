package demo

import (
	"fmt"
	"io"
	"strings"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
)

// progress begins the lines that tell of an epoch.
const progress = "epoch "

// String is one line that tells how training stands.
func (e Epoch) String() string {
	const width = 12 // short enough for a terminal of 80 columns
	done := width * e.Epoch / max(e.Epochs, 1)
	return fmt.Sprintf("%s%3d/%d [%s%s] loss %.4f, accuracy %.1f %%, %.0f images/s",
		progress, e.Epoch, e.Epochs, strings.Repeat("=", done), strings.Repeat(".", width-done), e.Loss, 100*e.Accuracy,
		e.Speed)
}

// Write tells the result in words.
func (r *Result) Write(w io.Writer) error {
	word := func(good bool) string {
		if good {
			return "ok"
		}
		return "WRONG"
	}
	bandwidth := func(what string, b bench.Row) string {
		return fmt.Sprintf("%s: %.4g us, algbw %.2f GB/s, busbw %.2f GB/s (%s)", what, b.MedianUS, b.AlgBW, b.BusBW,
			b.Algorithm)
	}
	if l := r.Lost; l != nil {
		if _, err := fmt.Fprintf(w, "lost      a rank at step %d of %d; %d ranks went on after %.3f s\n          %s\n",
			l.Step, l.Steps, l.Ranks, l.Seconds, l.Error); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, `trained   %d parameters on %d images with %d ranks over %s: %.2f s
accuracy  %.2f %% of %d held-out images (at least %.0f %%: %s)
gradient  %s
large     %s
ranks     all hold the same bits: %s
one rank  accuracy %.2f %%, largest difference of a parameter %.2g, tolerance %.0g: %s
`,
		r.Parameters, r.Trained, r.Ranks, r.Fabric, r.Seconds,
		100*r.Accuracy, r.HeldOut, 100*LeastAccuracy, word(r.Accuracy >= LeastAccuracy),
		bandwidth(fmt.Sprintf("all-reduce of %d bytes", r.Gradient.Bytes), r.Gradient),
		bandwidth(fmt.Sprintf("all-reduce of %d MiB", r.Large.Bytes>>20), r.Large),
		word(r.SameBits),
		100*r.OneRank.Accuracy, r.OneRank.Difference, r.OneRank.Tolerance, word(r.OneRank.Difference <= r.OneRank.Tolerance))
	return err
}

// Live redraws progress in one line of a terminal, and passes other lines on.
type Live struct {
	w       io.Writer
	drawing bool
}

// NewLive returns a Live on a terminal.
func NewLive(w io.Writer) *Live { return &Live{w: w} }

// Write takes whole lines.
func (l *Live) Write(p []byte) (int, error) {
	var b strings.Builder
	for line := range strings.Lines(string(p)) {
		if strings.HasPrefix(line, progress) {
			b.WriteString("\r\x1b[K" + strings.TrimSuffix(line, "\n"))
			l.drawing = true
			continue
		}
		if l.drawing {
			b.WriteString("\n")
			l.drawing = false
		}
		b.WriteString(line)
	}
	_, err := io.WriteString(l.w, b.String())
	return len(p), err
}
