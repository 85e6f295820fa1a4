package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
)

// Result is what Run measured. Version and Command are the caller's to fill in.
type Result struct {
	Rows      []Row   `json:"rows"`
	Machine   Machine `json:"machine"`
	Placement struct {
		Before Placement `json:"before"`
		After  Placement `json:"after"`
	} `json:"placement"`
	Version string `json:"version"`
	Command string `json:"command"`
}

// Row is one size of one operation. Bandwidths are in 1e9 bytes per second.
type Row struct {
	Operation string  `json:"operation"`
	Bytes     int     `json:"bytes"` // of all blocks together
	Count     int     `json:"count"` // elements of all blocks
	DType     string  `json:"dtype"`
	Reduction string  `json:"redop"`
	MedianUS  float64 `json:"median_us"`
	P99US     float64 `json:"p99_us"`
	AlgBW     float64 `json:"algbw_gbs"`
	BusBW     float64 `json:"busbw_gbs"`
	Limit     float64 `json:"limit_gbs"` // algbw of one pass over the memory without synchronization; 0 if there's none
	Share     float64 `json:"share"`     // algbw by limit
	Fabric    string  `json:"fabric"`
	Algorithm string  `json:"algorithm"`
	Memory    string  `json:"memory"`
	Device    string  `json:"device,omitempty"`
	Refill    bool    `json:"refill"`
	InPlace   bool    `json:"in_place"`
	Ranks     int     `json:"ranks"`
	Rounds    int     `json:"rounds"`
	Checked   int     `json:"checked"` // rounds of which every element was looked at
	Errors    int     `json:"errors"`  // elements that were not what they must be
}

// fill sets what follows from the measured seconds.
func (r *Row) fill(op *operation, st stats, rounds int, pass float64) {
	r.Rounds = rounds
	r.MedianUS, r.P99US = digits(st.median*1e6), digits(st.p99*1e6)
	if st.median > 0 {
		bw := float64(r.Bytes) / st.median / 1e9
		r.AlgBW, r.BusBW = digits(bw), digits(bw*op.factor(float64(r.Ranks)))
		if pass > 0 {
			r.Limit, r.Share = digits(float64(r.Bytes)/pass/1e9), digits(pass/st.median)
		}
	}
}

// digits rounds to five significant digits: more would be noise.
func digits(x float64) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	scale := math.Pow(10, 4-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// WriteJSON writes the result as one JSON document.
func (r *Result) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// WriteCSV writes the rows, with the names of the JSON document above them.
func (r *Result) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	t := reflect.TypeFor[Row]()
	line := make([]string, t.NumField())
	for i := range line {
		line[i] = t.Field(i).Tag.Get("json")
	}
	c.Write(line)
	for _, row := range r.Rows {
		v := reflect.ValueOf(row)
		for i := range line {
			line[i] = fmt.Sprint(v.Field(i).Interface())
		}
		c.Write(line)
	}
	c.Flush()
	return c.Error()
}
