package comm

// AtRegroup has f called at each step of every attempt to make a new world, until the test ends.
func AtRegroup(t interface{ Cleanup(func()) }, f func(step string)) {
	atRegroup = func(_ *ending, step string) { f(step) }
	t.Cleanup(func() { atRegroup = nil })
}
