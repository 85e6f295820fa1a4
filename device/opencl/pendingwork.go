package opencl

// mostElements is how many elements brief work of a stream has at most: a second's work of a processor, or less.
const mostElements = 1 << 26

// burden is what a stream has to do since it was last seen at rest. Work is brief if it is copies, fills and kernels
// alone that end after a moment for each element ([device.Launch].Elements), of which there aren't too many.
type burden struct {
	elements int
	heavy    bool // other work than brief work, which the device counts
}

// elementsOf is how many elements a copy of so many bytes counts for.
func elementsOf(bytes int) int { return max(1, bytes/4) }

// enqueues notes that work is enqueued: brief work on so many elements, or other work if it's 0. The stream is locked.
func (s *stream) enqueues(elements int) {
	if !s.dirty && s.tail.Over() {
		s.burden.end(s.b)
	}
	s.dirty = true
	l := &s.burden
	l.elements += elements
	if !l.heavy && (elements <= 0 || l.elements > mostElements) {
		l.heavy = true
		s.b.heavy.Add(1)
	}
}

// rested takes the burden away if the stream has done its work.
func (s *stream) rested() {
	s.Lock()
	defer s.Unlock()
	if !s.dirty && s.tail.Over() && !s.Gone {
		s.burden.end(s.b)
	}
}

// end takes the burden away.
func (l *burden) end(b *dev) {
	if l.heavy {
		b.heavy.Add(-1)
	}
	*l = burden{}
}
