package main

import (
	"os"

	"github.com/chorus-comms/chorus/plan/calibration"
)

// calibrationFacts say by which costs algorithms are chosen.
type calibrationFacts struct {
	On      bool                `json:"on"`
	File    string              `json:"file"`
	Entries []calibration.Entry `json:"entries"`
	Error   string              `json:"error,omitempty"` // why the file can't be used, if there is one
}

func (d *diagnosis) calibration() {
	c := &d.Calibration
	c.Entries = []calibration.Entry{}
	var err error
	if c.File, c.On, err = calibrationFile(); err != nil {
		c.Error = err.Error()
		return
	}
	_, missing := os.Stat(c.File)
	entries, err := calibration.Read(c.File)
	switch {
	case err == nil:
		c.Entries = entries
	case c.On || missing == nil:
		c.Error = err.Error()
		d.warn("%v", err)
	}
}

// use says in words whether the file counts.
func (c *calibrationFacts) use() string {
	switch {
	case !c.On:
		return "no: CHORUS_CALIBRATION is off"
	case c.Error != "":
		return "no: " + c.Error
	}
	return "yes"
}
