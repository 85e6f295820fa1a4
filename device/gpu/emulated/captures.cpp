// Captures of streams, and graphs.
#include <algorithm>

#include "server.h"

namespace emulated {

// Calls that are unsafe in a capture: what they do isn't captured, though what is may depend on it.
static bool unsafe(Call call) {
	switch (call) {
	case Call::allocate:
	case Call::release:
	case Call::pin:
	case Call::unpin:
	case Call::event_query:
	case Call::stream_query:
	case Call::event_elapsed:
	case Call::module_load:
	case Call::module_unload:
	case Call::stream_destroy:
		return true;
	default:
		return false;
	}
}

// ends_captures reports whether a call ends captures of others, and ends them. HIP's queries do that even in mode
// relaxed, before 7.2.
bool Server::ends_captures(const Request &r) {
	if (!unsafe(r.call))
		return false;
	bool query = dialect == Dialect::hip && (r.call == Call::event_query || r.call == Call::stream_query);
	bool ended = false;
	for (auto &c : captures)
		if ((c->mode == mode_global && (r.capture_mode != mode_relaxed || query)) ||
		    (c->mode == mode_thread && c->thread == r.thread && r.capture_mode != mode_relaxed))
			c->invalid = ended = true;
	return ended;
}

Result Server::begin_capture(Message &m) {
	Stream *s = find(streams, m[0]);
	if (!s)
		return invalid_handle;
	if (s->capture)
		return invalid_value;
	auto c = std::make_shared<Capture>();
	c->origin = m[0], c->mode = int(m[1]), c->thread = m.request.thread;
	c->streams.insert(m[0]);
	captures.insert(c);
	s->capture = c, s->place = {};
	return success;
}

Result Server::end_capture(Message &m) {
	Stream *s = find(streams, m[0]);
	if (!s || !s->capture)
		return invalid_value;
	auto c = s->capture;
	if (c->origin != m[0]) {
		c->invalid = true;
		return capture_unmatched;
	}
	if (c->mode != mode_relaxed && c->thread != m.request.thread)
		return capture_wrong_thread;
	// All nodes that nothing waits for must be those behind which the stream is.
	std::set<size_t> ends;
	for (size_t i = 0; i < c->graph->nodes.size(); i++) {
		ends.insert(i);
		for (size_t before : c->graph->nodes[i].after)
			ends.erase(before);
	}
	for (size_t i : s->place)
		ends.erase(i);
	for (Handle h : c->streams)
		if (Stream *other = find(streams, h))
			other->capture = nullptr, other->place = {};
	captures.erase(c);
	if (c->invalid)
		return capture_invalidated;
	if (!ends.empty())
		return capture_unjoined;
	m.out(0) = add(graphs, c->graph);
	return success;
}

// A node's handle is the graph's and its number. They are listed with the last first, since a library promises no
// order.
constexpr uint64_t nodes_of_graph = 1 << 20;

Result Server::graph_nodes(Message &m) {
	auto *g = find(graphs, m[0]);
	if (!g)
		return invalid_value;
	std::vector<Handle> all;
	for (size_t i = (*g)->nodes.size(); i > 0; i--)
		all.push_back(m[0] * nodes_of_graph + i - 1);
	m.out(0) = all.size();
	m.payload.assign(reinterpret_cast<const char *>(all.data()), all.size() * sizeof(Handle));
	return success;
}

Result Server::graph_edges(Message &m) {
	auto *g = find(graphs, m[0]);
	if (!g)
		return invalid_value;
	std::vector<Handle> all;
	for (size_t i = 0; i < (*g)->nodes.size(); i++)
		for (size_t before : (*g)->nodes[i].after) {
			all.push_back(m[0] * nodes_of_graph + before);
			all.push_back(m[0] * nodes_of_graph + i);
		}
	m.out(0) = all.size() / 2;
	m.payload.assign(reinterpret_cast<const char *>(all.data()), all.size() * sizeof(Handle));
	return success;
}

Result Server::node_type(Message &m) {
	auto *g = find(graphs, m[0] / nodes_of_graph);
	size_t i = m[0] % nodes_of_graph;
	if (!g || i >= (*g)->nodes.size())
		return invalid_value;
	m.out(0) = uint64_t((*g)->nodes[i].type);
	return success;
}

Result Server::instantiate(Message &m) {
	auto *g = find(graphs, m[0]);
	if (!g)
		return invalid_value;
	m.out(0) = add(execs, *g);
	return success;
}

// lanes says on which lane each node of a graph runs: behind one that it waits for if nothing else is behind that.
static std::vector<size_t> lanes(const Graph &graph) {
	std::vector<size_t> lane(graph.nodes.size()), last; // the last node of each lane
	for (size_t i = 0; i < lane.size(); i++) {
		const Place &after = graph.nodes[i].after;
		size_t mine = last.size();
		for (size_t before : after)
			if (last[lane[before]] == before)
				mine = std::min(mine, lane[before]);
		if (mine == last.size())
			last.push_back(i);
		lane[i] = mine, last[mine] = i;
	}
	return lane;
}

// exec_launch enqueues the nodes in the order of their capture, which is one in which they may run. Branches run beside
// each other, on queues that few streams have.
Result Server::exec_launch(Handle exec, Handle stream) {
	auto *x = find(execs, exec);
	Stream *s = find(streams, stream);
	if (!x || !s)
		return invalid_handle;
	if (s->capture)
		return capture_unsupported;
	auto graph = *x;
	size_t n = graph->nodes.size();
	std::vector<Queue *> others;
	for (unsigned i = 0; i < settings.queues; i++)
		if (Queue *q = &devices[s->device].queue[i]; q != s->queue)
			others.push_back(q);
	std::stable_sort(others.begin(), others.end(), [](Queue *a, Queue *b) { return a->streams < b->streams; });
	auto lane = lanes(*graph);
	auto on = [&](size_t l) { // a stream that is the lane
		Stream t = *s;
		if (l > 0 && !others.empty())
			t.queue = others[(l - 1) % others.size()];
		return t;
	};
	std::vector<std::shared_ptr<Mark>> marks(n);
	auto start = std::make_shared<Mark>();
	mark(*s, start);
	for (size_t i = 0; i < n; i++) {
		Stream t = on(lane[i]);
		if (graph->nodes[i].after.empty())
			push(
			    t, [start] { start->wait(); }, true);
		for (size_t before : graph->nodes[i].after)
			if (lane[before] != lane[i])
				push(
				    t, [mark = marks[before]] { mark->wait(); }, true);
		push(t, [graph, i] { graph->nodes[i].work(); });
		marks[i] = std::make_shared<Mark>();
		mark(t, marks[i]);
	}
	for (auto &mark : marks)
		push(
		    *s, [mark] { mark->wait(); }, true);
	return success;
}

Result Server::exec_update(Handle exec, Handle graph) {
	auto *x = find(execs, exec), *g = find(graphs, graph);
	if (!x || !g)
		return invalid_value;
	if (!same(**x, **g))
		return update_failure;
	*x = *g;
	return success;
}

} // namespace emulated
