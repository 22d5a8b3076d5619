#include "framework/model/model.h"

#include "kernels/error.h"

namespace foretoken {

std::int64_t KvShape::bytes_per_row() const {
  std::int64_t bytes = 0;
  for (const LayerShape& l : layers) bytes += l.bytes_per_row();
  return bytes;
}

int KvShape::window(const std::string& model) const {
  for (const LayerShape& l : layers)
    if (l.window != layers.front().window)
      throw Error("layers of the model " + model + " have windows of " + std::to_string(layers.front().window) +
                  " and of " + std::to_string(l.window) +
                  " positions (0: all); only one size is supported, so choose a model with one");
  return layers.empty() ? 0 : layers.front().window;
}

void expect_tokens_alone(const Rows& rows, const std::string& model) {
  if (!rows.taps.empty())
    throw Error("the model " + model +
                " is requested to store its hidden states (Rows::taps), which it does not support yet");
  if (rows.inputs)
    throw Error("the model " + model + " is given features of its rows (Rows::inputs), which it does not support yet");
}

}  // namespace foretoken
