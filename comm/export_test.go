package comm

// SetAtRegroup has f called at each step of every attempt to make a new world.
func SetAtRegroup(f func(step string)) {
	atRegroup = f
}
