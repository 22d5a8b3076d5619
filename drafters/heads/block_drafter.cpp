#include "drafters/heads/block_drafter.h"

#include "drafters/heads/head_entry.h"
#include "framework/components/round_model.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

HeadKind head_of(const BlockKind& kind) {
  HeadKind head{.name = kind.name, .summary = kind.summary, .source = kind.source, .taps = {}, .load = {}};
  head.taps = [corrects = kind.corrects](const nlohmann::json& o, const ModelInfo& target) {
    return open_block(o, corrects, target).form.taps;
  };
  head.load = [corrects = kind.corrects](const nlohmann::json& o, const std::string& dtype, Host& host) {
    return std::make_shared<BlockHead>(host.backend(), open_block(o, corrects, host.target(), dtype == "f32"),
                                       host.ends(), host.target(), dtype);
  };
  head.random_keys = random_block_keys(kind.corrects);
  head.inflated_keys = std::vector<std::string>{"layers", "draft_vocab"};
  return head;
}

Block block_of(const BlockForm& form, const nlohmann::json& rows, const std::string& drafter) {
  Block block{form.rows, form.mask, form.mutual(), form.first};
  if (rows.is_null()) return block;
  block.rows = rows.get<int>();
  if (block.drafts() < 1)
    throw Error("'rows' of the drafter '" + drafter + "' is " + std::to_string(block.rows) +
                ", but the first row of this head's blocks predicts nothing; use 2 or more");
  return block;
}

}  // namespace

Entry<Drafter> block_entry(BlockKind kind) {
  const HeadKind head = head_of(kind);
  std::vector<Option> options = head_options(head);
  options.push_back(
      {"rows", "integer", nullptr,
       "rows of a block, the sequence's last token among them; null: as many as the head was trained with "
       "(other numbers cost acceptance, since all rows attend to one another)",
       true, 1, 1 + kMaxPath});
  options.push_back(draft_temperature());
  const nlohmann::json small{{"random", "small"}}, other{{"random", "small"}, {"seed", 2}, {"block", 3}};
  return {kind.summary,
          kind.source,
          std::move(options),
          [kind, head](const nlohmann::json& o, Host& host) {
            const auto loaded = std::static_pointer_cast<BlockHead>(load_head(head, o, host));
            const BlockForm& form = loaded->form();
            return kind.make(host,
                             {loaded, BlockModel(host, loaded, form.taps, block_of(form, o.at("rows"), kind.name)),
                              read_draft_temperature(o, kind.name)});
          },
          [kind, head](const nlohmann::json& o, const ModelInfo& target) {
            Needs needs{.proposes = {kind.draws}, .confidence = true};
            if (!target.kv.layers.empty()) needs.hidden = head.taps(read_head(head, o, target), target);
            return needs;
          },
          {{{"head", small}, {"temperature", 0.5}}, {{"head", other}, {"dtype", "f32"}, {"rows", 5}}}};
}

}  // namespace foretoken
