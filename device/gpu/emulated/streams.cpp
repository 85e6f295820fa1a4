// Streams and events.
#include <algorithm>
#include <cstdio>
#include <unistd.h>

#include "server.h"
#include "socket.h"

namespace emulated {

// push enqueues work, which a lost device leaves out unless it's always done.
void Server::push(Stream &s, Work work, bool always) {
	auto waiting = s.waiting;
	++*waiting;
	Device *d = &devices[s.device];
	s.queue->push([=, work = std::move(work)] {
		if (always || d->lost == success)
			work();
		--*waiting;
	});
}

// mark enqueues the passing of a mark, and the stream counts as done before.
void Server::mark(Stream &s, const std::shared_ptr<Mark> &mark) {
	auto waiting = s.waiting;
	++*waiting;
	s.queue->push([=] {
		--*waiting;
		mark->pass();
	});
}

// enqueue is push, or a node of the graph that the stream captures.
Result Server::enqueue(Handle h, Node type, Work work) {
	Stream *s = find(streams, h);
	if (!s)
		return invalid_handle;
	if (!s->capture) {
		push(*s, std::move(work));
		return success;
	}
	if (s->capture->invalid)
		return capture_invalidated;
	auto &nodes = s->capture->graph->nodes;
	nodes.push_back({type, std::move(work), s->place});
	s->place = {nodes.size() - 1};
	return success;
}

Result Server::stream_create(Message &m) {
	Device *d = device(m.request);
	if (!d)
		return invalid_context;
	Queue *least = std::min_element(
	    d->queue, d->queue + settings.queues, [](const Queue &a, const Queue &b) { return a.streams < b.streams; });
	least->streams++;
	m.out(0) = add(streams, Stream{m.request.device, least});
	return success;
}

// Work of a destroyed stream is done all the same.
Result Server::stream_destroy(Handle h) {
	Stream *s = find(streams, h);
	if (!s)
		return invalid_handle;
	if (s->capture) {
		s->capture->invalid = true;
		s->capture->streams.erase(h);
	}
	s->queue->streams--;
	streams.erase(h);
	return success;
}

Result Server::stream_query(Handle h) {
	Stream *s = find(streams, h);
	if (!s)
		return invalid_handle;
	if (s->capture) {
		s->capture->invalid = true;
		return capture_unsupported;
	}
	return *s->waiting == 0 ? success : not_ready;
}

// errand has the user's process do something, and waits for it.
void Server::errand(uint32_t kind, uint64_t a, uint64_t b, uint64_t bytes) {
	Errand e{kind, 0, a, b, bytes};
	char done;
	if (!send_all(fd_errands, &e, sizeof e) || !receive_all(fd_errands, &done, 1))
		_exit(0); // the process is gone
}

Result Server::host_function(Message &m) {
	uint64_t f = m[1], argument = m[2];
	return enqueue(m[0], node_host, [=, this] {
		std::lock_guard lock(on_errand); // one function after the other
		errand(0, f, argument, 0);
	});
}

Result Server::wait_value(Message &m) {
	uint64_t at = m[1];
	uint32_t value = uint32_t(m[2]);
	bool equal = m[3] == wait_equal;
	Stream *s = find(streams, m[0]);
	if (!s)
		return invalid_handle;
	if (!pins.holds(at, 4))
		return invalid_value;
	Device *d = &devices[s->device];
	return enqueue(m[0], dialect == Dialect::cuda ? node_wait_cuda : node_wait_hip, [=] {
		auto &word = *reinterpret_cast<std::atomic<uint32_t> *>(at);
		for (int i = 0; d->lost == success; i++) {
			uint32_t is = word;
			if (is == value || (!equal && int32_t(is - value) >= 0))
				return;
			if (i > 20)
				usleep(i < 200 ? 10 : 100);
		}
	});
}

Result Server::event_create(Message &m) {
	if (!device(m.request))
		return invalid_context;
	m.out(0) = add(events, Event{m.request.device, (m[0] & event_disable_timing) == 0});
	return success;
}

Result Server::event_record(Handle event, Handle stream) {
	Event *e = find(events, event);
	Stream *s = find(streams, stream);
	if (!e || !s || e->device != s->device)
		return invalid_handle;
	if (s->capture) {
		if (s->capture->invalid)
			return capture_invalidated;
		e->mark = nullptr, e->capture = s->capture, e->place = s->place;
		return success;
	}
	auto mark = std::make_shared<Mark>();
	e->mark = mark, e->capture = nullptr;
	this->mark(*s, mark);
	return success;
}

Result Server::event_query(Handle h) {
	Event *e = find(events, h);
	if (!e)
		return invalid_handle;
	if (e->capture) {
		e->capture->invalid = true;
		return captured_event;
	}
	return !e->mark || e->mark->passed() ? success : not_ready;
}

Result Server::event_elapsed(Message &m) {
	Event *start = find(events, m[0]), *end = find(events, m[1]);
	if (!start || !end || !start->timed || !end->timed)
		return invalid_handle;
	if (start->capture || end->capture)
		return captured_event;
	if (!start->mark || !end->mark)
		return invalid_handle;
	if (!start->mark->passed() || !end->mark->passed())
		return not_ready;
	m.out(0) = uint64_t(std::chrono::nanoseconds(end->mark->at - start->mark->at).count());
	return success;
}

Result Server::stream_wait(Handle stream, Handle event) {
	Event *e = find(events, event);
	Stream *s = find(streams, stream);
	if (!e || !s)
		return invalid_handle;
	if (e->capture) { // the stream takes part
		if (e->capture->invalid || !captures.count(e->capture))
			return capture_invalidated;
		if (s->capture && s->capture != e->capture) {
			s->capture->invalid = e->capture->invalid = true;
			return capture_merge;
		}
		s->place = s->capture ? joined(s->place, e->place) : e->place;
		s->capture = e->capture;
		s->capture->streams.insert(stream);
		return success;
	}
	if (!e->mark)
		return success;
	if (s->capture) {
		s->capture->invalid = true;
		return capture_isolation;
	}
	auto mark = e->mark;
	push(
	    *s, [mark] { mark->wait(); }, true);
	return success;
}

// fence is of all that a stream's queue has to do now, or those of the current device.
Result Server::fence(Message &m) {
	Device *d = device(m.request);
	Stream *s = find(streams, m[0]);
	if (!d)
		return invalid_context;
	std::vector<std::pair<Queue *, uint64_t>> all;
	for (Queue &q : d->queue)
		if (!s)
			all.push_back({&q, q.pushed});
	if (s)
		all.push_back({s->queue, s->queue->pushed});
	m.out(0) = ++last;
	fences[last] = std::move(all);
	return success;
}

Result Server::passed(uint64_t fence) {
	auto i = fences.find(fence);
	if (i == fences.end())
		return invalid_value;
	for (auto [queue, n] : i->second)
		if (queue->finished < n)
			return not_ready;
	fences.erase(i);
	return success;
}

void Server::lose(int device, Result why) {
	int32_t none = success;
	devices[device].lost.compare_exchange_strong(none, why);
}

} // namespace emulated
