package comm

// SetAtRegroup has f called at each step of every attempt to make a new world.
func SetAtRegroup(f func(step string)) {
	atRegroup = f
}

// Unrecorded takes the flight recorder from a communicator, until the function that it returns gives it back.
func Unrecorded(c *Comm) (restore func()) {
	rec := c.rec
	c.rec = nil
	return func() { c.rec = rec }
}

// SetPieceBytes sets how large pieces are, until the function that it returns is called.
func SetPieceBytes(n int) (restore func()) {
	before := pieceBytes
	pieceBytes = n
	return func() { pieceBytes = before }
}
