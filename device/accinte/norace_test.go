//go:build !race

package accinte

const raceEnabled = false
