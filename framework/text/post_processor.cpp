#include "framework/text/post_processor.h"

#include <utility>

#include "framework/text/json_file.h"

namespace foretoken {
namespace {

using nlohmann::json;

void read_template(const Fields& fields, PostProcessor& frame) {
  bool text_seen = false;
  std::vector<Token> before, after;
  for (const json& part : fields.array("single")) {
    const Fields item(part, fields.where(), "post_processor.single");
    if (item.has("Sequence")) {
      if (std::exchange(text_seen, true)) fields.refuse("single", "the text may occur in it only once");
      continue;
    }
    const std::string name = item.object("SpecialToken").string("id");
    for (const json& id : fields.object("special_tokens").object(name.c_str()).array("ids")) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > 1 << 24)
        fields.refuse("special_tokens", "its ids must be token ids");
      (text_seen ? after : before).push_back(id.get<Token>());
    }
  }
  if (!text_seen) fields.refuse("single", "the text must occur in it");
  frame.before.insert(frame.before.begin(), before.begin(), before.end());
  frame.after.insert(frame.after.end(), after.begin(), after.end());
}

void read(const json& spec, const std::string& where, PostProcessor& frame) {
  if (spec.is_null()) return;
  const Fields fields(spec, where, "post_processor");
  const std::string type = fields.string("type");
  if (type == "ByteLevel") return;
  if (type == "TemplateProcessing") return read_template(fields, frame);
  if (type != "Sequence")
    fields.refuse("type", "the supported post-processors are ByteLevel, TemplateProcessing and Sequence");
  for (const json& part : fields.array("processors")) read(part, where, frame);
}

}  // namespace

PostProcessor PostProcessor::load(const json& spec, const std::string& where) {
  PostProcessor frame;
  read(spec, where, frame);
  return frame;
}

}  // namespace foretoken
