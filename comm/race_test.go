//go:build race

package comm_test

const raceEnabled = true

// suiteWorlds are the suite's, which takes ten times as long here, and with four ranks half of that.
var suiteWorlds = []int{1, 2, 3}
