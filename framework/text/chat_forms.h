// Conversation formats by name: templates of our own, for models whose files hold none. This module must not know how
// they are rendered.
#pragma once
#include <string>
#include <vector>

namespace foretoken {

struct ChatForm {
  std::string name, source;        // Jinja
  std::vector<std::string> marks;  // special tokens that it writes, one token each
};

const std::vector<ChatForm>& chat_forms();

}  // namespace foretoken
