// Graphs, and what streams capture for them.
#pragma once

#include <set>
#include <vector>

#include "queues.h"

namespace emulated {

struct GraphNode {
	Node type;
	Work work;
	std::vector<size_t> after; // nodes that it waits for
};

// A graph doesn't change once its capture is over, so that executables share its nodes.
struct Graph {
	std::vector<GraphNode> nodes;
};

struct Capture {
	std::shared_ptr<Graph> graph = std::make_shared<Graph>();
	uint64_t origin;            // the stream that began it
	std::set<uint64_t> streams; // that take part
	int mode, thread;
	bool invalid = false;
};

using Place = std::vector<size_t>; // the nodes that the next one waits for

// joined unites what two places wait for.
inline Place joined(const Place &a, const Place &b) {
	std::set<size_t> all(a.begin(), a.end());
	all.insert(b.begin(), b.end());
	return Place(all.begin(), all.end());
}

// same reports whether an executable of one graph can become one of the other.
inline bool same(const Graph &a, const Graph &b) {
	if (a.nodes.size() != b.nodes.size())
		return false;
	for (size_t i = 0; i < a.nodes.size(); i++)
		if (a.nodes[i].type != b.nodes[i].type || a.nodes[i].after != b.nodes[i].after)
			return false;
	return true;
}

} // namespace emulated
