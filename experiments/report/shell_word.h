// One argument of a command as a shell reads it, for commands that a reader may copy.
#pragma once
#include <string>

namespace foretoken {

// Quoted where a shell would read it otherwise.
std::string shell_word(const std::string& word);

}  // namespace foretoken
