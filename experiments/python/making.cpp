#include "experiments/python/making.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "experiments/python/calls.h"
#include "framework/components/host.h"
#include "kernels/error.h"

namespace foretoken::python {

using nlohmann::json;

namespace {

// Never freed: what it holds of Python must not be given back after the interpreter has ended.
struct Shelf {
  std::mutex mutex;
  Registries registries;
  std::map<std::string, std::string> files;  // of those from Python, by "drafter mine": file_of()
};

Shelf& shelf() {
  static Shelf* const one = [] {
    auto* const made = new Shelf;
    register_drafters(made->registries);
    register_verifiers(made->registries);
    return made;
  }();
  return *one;
}

}  // namespace

std::shared_ptr<nb::object> kept(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* o) {
            const nb::gil_scoped_acquire gil;
            delete o;
          }};
}

nb::object method_of(const nb::object& self, const char* name) {
  nb::object method = nb::getattr(self, name, nb::none());
  return method.is_none() ? nb::object() : method;
}

std::string shape_text(const std::vector<std::size_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::vector<Option> options_of(const Registration& r) {
  std::vector<Option> options;
  for (const json& o : json::parse(r.options)) {
    Option option{o.at("name"), o.at("type"), o.at("standard"), o.at("meaning"), o.at("optional").get<bool>()};
    if (!o.at("least").is_null()) option.least = o["least"];
    if (!o.at("most").is_null()) option.most = o["most"];
    options.push_back(std::move(option));
  }
  return options;
}

std::function<json(const json&)> stated_by(const Registration& r, const std::string& who) {
  return [traits = kept(r.traits), who](const json& options) {
    const nb::gil_scoped_acquire gil;
    return calling(who, "what states its traits",
                   [&] { return json::parse(nb::cast<std::string>((*traits)(options.dump()))); });
  };
}

nb::object made(const nb::object& make, const json& options, Host& host, const std::string& who) {
  const ModelInfo& target = host.target();
  const json facts{{"vocab", target.vocab},
                   {"positions", target.positions},
                   {"width", target.width},
                   {"target", target.name},
                   {"device", host.backend().name()}};
  return calling(who, "its making", [&] { return make(options.dump(), facts.dump()); });
}

std::shared_ptr<StepBatch> step_of(const StepReport& report) {
  auto step = std::make_shared<StepBatch>();
  for (const SequenceReport& r : report.sequences) {
    if (!r.judged) continue;
    step->ids.push_back(r.id);
    step->drafted.push_back(r.drafted), step->tested.push_back(r.tested()), step->accepted.push_back(r.accepted);
    step->emitted.push_back(std::int32_t(r.emitted.size()));
  }
  step->rows = report.rows, step->waiting = report.waiting, step->running = report.running;
  step->recorded = report.recorded, step->phases = report.phases;
  return step;
}

std::string file_of(const Registration& r, const std::string& kind) {
  return r.hash.empty() ? "" : r.name + " (Python " + kind + (r.file.empty() ? ")" : ", " + r.file + ")");
}

template <class T> void put(Registry<T> Registries::* kind, const Registration& r, Entry<T> entry) {
  Shelf& s = shelf();
  const std::lock_guard lock(s.mutex);
  Registry<T>& registry = s.registries.*kind;
  const std::string name = registry.what() + " " + r.name, file = entry.plugin;
  if (const auto before = s.files.find(name); before != s.files.end()) {
    registry.replace(r.name, std::move(entry));
    std::erase_if(s.registries.plugins, [&](const PluginFile& p) { return p.path == before->second; });
  } else {
    registry.add(r.name, std::move(entry));
  }
  s.files[name] = file;
  if (!file.empty()) s.registries.plugins.push_back({file, r.hash});
}
template void put(Registry<Drafter> Registries::*, const Registration&, Entry<Drafter>);
template void put(Registry<LengthPolicy> Registries::*, const Registration&, Entry<LengthPolicy>);

Registries registries() {
  Shelf& s = shelf();
  const std::lock_guard lock(s.mutex);
  return s.registries;
}

std::optional<std::string> hash_from_python(const std::string& path) {
  Shelf& s = shelf();
  const std::lock_guard lock(s.mutex);
  const auto found = std::ranges::find(s.registries.plugins, path, &PluginFile::path);
  return found == s.registries.plugins.end() ? std::nullopt : std::optional(found->hash);
}

}  // namespace foretoken::python
