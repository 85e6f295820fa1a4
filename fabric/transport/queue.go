package transport

import "slices"

// Queue is a queue that allocates nothing once it has been as long before. The zero Queue is empty. It has no lock of
// its own.
type Queue[T comparable] struct {
	list []T
	head int // where the first one is
}

// Empty reports whether there is nothing in the queue.
func (q *Queue[T]) Empty() bool { return q.head == len(q.list) }

// First returns the first element of a queue that is not empty.
func (q *Queue[T]) First() T { return q.list[q.head] }

// Push adds an element at the end.
func (q *Queue[T]) Push(v T) {
	if q.head > 16 && q.head > len(q.list)/2 { // it never ran empty
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, v)
}

// Pop takes the first element out of a queue that is not empty.
func (q *Queue[T]) Pop() T {
	var none T
	v := q.list[q.head]
	q.list[q.head] = none
	q.head++
	q.rewind()
	return v
}

// rewind begins anew if the queue is empty.
func (q *Queue[T]) rewind() {
	if q.Empty() {
		q.list, q.head = q.list[:0], 0
	}
}

// Insert puts v before the first element that it precedes.
func (q *Queue[T]) Insert(v T, precedes func(T) bool) {
	at := slices.IndexFunc(q.list[q.head:], precedes)
	if at < 0 {
		q.Push(v)
		return
	}
	q.list = slices.Insert(q.list, q.head+at, v)
}

// Remove takes an element out, wherever it is, and reports whether it was there.
func (q *Queue[T]) Remove(v T) bool {
	at := slices.Index(q.list[q.head:], v)
	if at < 0 {
		return false
	}
	q.list = slices.Delete(q.list, q.head+at, q.head+at+1)
	q.rewind()
	return true
}

// Take removes the elements that are picked, and returns them in order.
func (q *Queue[T]) Take(pick func(T) bool) (taken []T) {
	rest := q.list[q.head:]
	for _, v := range rest {
		if pick(v) {
			taken = append(taken, v)
		}
	}
	if len(taken) > 0 {
		q.list = q.list[:q.head+len(slices.DeleteFunc(rest, pick))]
		q.rewind()
	}
	return taken
}

// Spares keeps what isn't used, for it to be used again. It has no lock of its own.
type Spares[T any] struct{ list []*T }

// Get returns one, or nil if there's none.
func (s *Spares[T]) Get() *T {
	n := len(s.list)
	if n == 0 {
		return nil
	}
	v := s.list[n-1]
	s.list[n-1], s.list = nil, s.list[:n-1]
	return v
}

// Put keeps one.
func (s *Spares[T]) Put(v *T) { s.list = append(s.list, v) }

// shelf has queues by key, none of which is empty.
type shelf[K comparable, T comparable] struct {
	queues map[K]*Queue[T]
	spare  Spares[Queue[T]]
}

// at returns the queue of a key, for something to be put into it.
func (s *shelf[K, T]) at(k K) *Queue[T] {
	q := s.queues[k]
	if q == nil {
		if q = s.spare.Get(); q == nil {
			q = new(Queue[T])
		}
		if s.queues == nil {
			s.queues = map[K]*Queue[T]{}
		}
		s.queues[k] = q
	}
	return q
}

// pop takes the first element under a key at which there is one.
func (s *shelf[K, T]) pop(k K, q *Queue[T]) T {
	v := q.Pop()
	s.trim(k, q)
	return v
}

// remove takes an element out, and reports whether it was there.
func (s *shelf[K, T]) remove(k K, v T) bool {
	q := s.queues[k]
	if q == nil || !q.Remove(v) {
		return false
	}
	s.trim(k, q)
	return true
}

// trim puts a queue aside if it's empty.
func (s *shelf[K, T]) trim(k K, q *Queue[T]) {
	if q.Empty() {
		delete(s.queues, k)
		s.spare.Put(q)
	}
}

// take removes what is picked.
func (s *shelf[K, T]) take(pick func(K, T) bool) (taken []T) {
	for k, q := range s.queues {
		taken = append(taken, q.Take(func(v T) bool { return pick(k, v) })...)
		s.trim(k, q)
	}
	return taken
}
