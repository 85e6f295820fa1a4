//go:build race

package comm_test

const raceEnabled = true

// suiteWorlds are the suite's, which takes ten times as long here: what two and three ranks don't race for, four don't either.
var suiteWorlds = []int{2, 3}
