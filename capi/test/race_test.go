//go:build race

package test

const raceEnabled = true // the library is built with the race detector, too
