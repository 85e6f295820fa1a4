//go:build !race

package comm_test

const raceEnabled = false

var suiteWorlds []int // the suite's own
