package transport

import "github.com/chorus-comms/chorus/fabric"

// Queues of posted receives and of arrivals, linked through their elements.

// MsgQueue is a queue of messages, linked through Next: a message is in one at a
// time, and nothing is allocated. The zero MsgQueue is empty. It has no lock of its own.
type MsgQueue struct{ head, tail *fabric.Msg }

// Empty reports whether there is no message in the queue.
func (q *MsgQueue) Empty() bool { return q.head == nil }

// Push adds m at the end.
func (q *MsgQueue) Push(m *fabric.Msg) {
	m.Next = nil
	if q.tail == nil {
		q.head = m
	} else {
		q.tail.Next = m
	}
	q.tail = m
}

// Pop takes the first message out of a queue that is not empty.
func (q *MsgQueue) Pop() *fabric.Msg {
	m := q.head
	q.head = m.Next
	if q.head == nil {
		q.tail = nil
	}
	m.Next = nil
	return m
}

// Unpop puts m back at the front.
func (q *MsgQueue) Unpop(m *fabric.Msg) {
	m.Next = q.head
	q.head = m
	if q.tail == nil {
		q.tail = m
	}
}

// Remove takes m out, wherever it is, and reports whether it was there.
func (q *MsgQueue) Remove(m *fabric.Msg) bool {
	var prev *fabric.Msg
	for x := q.head; x != nil; prev, x = x, x.Next {
		if x != m {
			continue
		}
		if prev == nil {
			q.head = x.Next
		} else {
			prev.Next = x.Next
		}
		if q.tail == x {
			q.tail = prev
		}
		x.Next = nil
		return true
	}
	return false
}

type arrivalQueue struct{ head, tail *Arrival }

func (q *arrivalQueue) push(a *Arrival) {
	a.next = nil
	if q.tail == nil {
		q.head = a
	} else {
		q.tail.next = a
	}
	q.tail = a
}

func (q *arrivalQueue) pop() *Arrival {
	a := q.head
	q.head = a.next
	if q.head == nil {
		q.tail = nil
	}
	a.next = nil
	return a
}

// insert adds a in its place by order.
func (q *arrivalQueue) insert(a *Arrival) {
	at := &q.head
	for *at != nil && (*at).order < a.order {
		at = &(*at).next
	}
	if a.next = *at; a.next == nil {
		q.tail = a
	}
	*at = a
}

// removeAll removes the arrivals that pick chooses and appends them to found.
func (q *arrivalQueue) removeAll(pick func(*Arrival) bool, found []*Arrival) []*Arrival {
	rest := arrivalQueue{}
	for q.head != nil {
		if a := q.pop(); pick(a) {
			found = append(found, a)
		} else {
			rest.push(a)
		}
	}
	*q = rest
	return found
}
