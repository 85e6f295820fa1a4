package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/chorus-comms/chorus/bootstrap"
)

// launcherFacts is what the variables of a launcher say about this process.
type launcherFacts struct {
	Name      string `json:"name"` // empty: there is none
	Rank      int    `json:"rank"`
	Size      int    `json:"size"`
	LocalRank int    `json:"local_rank"` // -1: not known
	LocalSize int    `json:"local_size"` // 0: not known
	Master    string `json:"master,omitempty"`
	RunID     string `json:"run_id,omitempty"`
	Error     string `json:"error,omitempty"`
}

func (d *diagnosis) launcher() {
	info, err := bootstrap.Detect(os.Getenv)
	switch {
	case errors.Is(err, bootstrap.ErrNoLauncher):
	case err != nil:
		d.Launcher.Error = err.Error()
		d.problem("the variables of a launcher make no sense: %v", err)
	default:
		d.Launcher = launcherFacts{
			Name: info.Launcher, Rank: info.Rank, Size: info.Size, LocalRank: info.LocalRank,
			LocalSize: info.LocalSize, RunID: info.RunID,
		}
		if info.MasterAddr != "" {
			d.Launcher.Master = fmt.Sprintf("%s port %d", info.MasterAddr, info.MasterPort)
		}
	}
}

func (l launcherFacts) String() string {
	switch {
	case l.Error != "":
		return l.Error
	case l.Name == "":
		return "none: a program started here is a world of one"
	}
	s := fmt.Sprintf("%s: rank %d of %d", l.Name, l.Rank, l.Size)
	if l.Master != "" {
		s += ", meeting at " + l.Master
	}
	return s
}
