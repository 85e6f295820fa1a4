#pragma once

#include <string>

namespace chorus {

// register_examples defines the operators of examples.cpp in torch.ops.<space>. It's called once.
void register_examples(const std::string& space);

} // namespace chorus
