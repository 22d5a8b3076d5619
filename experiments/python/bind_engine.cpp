#include <memory>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "experiments/python/arrays.h"
#include "experiments/python/bindings.h"
#include "experiments/python/held_session.h"
#include "experiments/python/making.h"
#include "kernels/error.h"

namespace foretoken::python {

using nlohmann::json;
using nb::literals::operator""_a;

namespace {

std::vector<Token> tokens_of(nb::handle given, const char* what) {
  Integers tokens = integers_of(given, what, "give one list of token ids");
  if (tokens.rank() != 1)
    throw Error(std::string(what) + " have the shape " + shape_text(tokens.shape) + "; give one list of token ids");
  return std::move(tokens.values);
}

std::unique_ptr<OutputStream> submit(const HeldSession& session, const Session::Form& form, nb::handle prompt,
                                     int number, std::uint64_t sample, const OutputStream* like) {
  Session::Asked asked;
  asked.number = number, asked.sample = sample, asked.like = like;
  if (nb::isinstance<nb::str>(prompt))
    asked.prompt = nb::cast<std::string>(prompt);
  else
    asked.prompt = tokens_of(prompt, "the tokens of a prompt");
  const nb::gil_scoped_release unlocked;
  return session->submit(form, asked);
}

void listen(OutputStream& stream, nb::object heard) {
  std::function<void()> call;
  if (!heard.is_none())
    call = [heard = kept(std::move(heard))] {
      const nb::gil_scoped_acquire gil;
      try {
        (*heard)();
      } catch (const nb::python_error&) {  // NOLINT(bugprone-empty-catch): who listened has gone, as a loop of asyncio
      }
    };
  const nb::gil_scoped_release unlocked;
  stream.listen(std::move(call));
}

nb::tuple ended(OutputStream& stream) {
  const Sequence* sequence = nullptr;
  {
    const nb::gil_scoped_release unlocked;
    sequence = &stream.ended();
  }
  return nb::make_tuple(name_of(sequence->finish), sequence->failure, owned(std::vector<float>(sequence->logprobs)));
}

void bind_streams(nb::module_& m) {
  nb::class_<OutputRound>(m, "OutputRound", "One round: what it emitted, and the text that can be shown with it.")
      .def_prop_ro("tokens", [](const OutputRound& r) { return r.tokens; })
      .def_ro("text", &OutputRound::text)
      .def_ro("drafted", &OutputRound::drafted)
      .def_ro("accepted", &OutputRound::accepted);
  nb::class_<OutputStream>(m, "OutputStream", "The output of one request, as it comes.")
      .def("ready", &OutputStream::ready, "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Whether next() returns at once; waits at most so many seconds for that, without the interpreter's lock.")
      .def("listen", &listen, "heard"_a.none(), "Calls `heard()` when ready() may have become true; None: no more.")
      .def("next", &OutputStream::next, nb::call_guard<nb::gil_scoped_release>())
      .def("cancel", &OutputStream::cancel)
      .def("ended", &ended, "(finish, failure, logprobs f32 [tokens]); waits for the end.")
      .def_prop_ro("prompt_tokens", &OutputStream::prompt_tokens)
      .def_prop_ro("counts", [](const OutputStream& s) {
        const OutputCounts& c = s.counts();
        return nb::make_tuple(c.rounds, c.drafted, c.tested, c.accepted);
      });
}

}  // namespace

void bind_engine(nb::module_& m) {
  bind_streams(m);
  m.def("wait_for_endings", &wait_for_endings, "seconds"_a);
  nb::class_<Session::Form>(m, "Form", "How requests of one call are made.")
      .def_prop_ro("run", [](const Session::Form& f) { return f.run.dump(); });
  nb::class_<HeldSession>(m, "Session", "An engine and the thread that drives it.")
      .def(nb::init<const std::string&, const std::string&>(), "document"_a, "beside"_a = "")
      .def(
          "form",
          [](const HeldSession& s, const std::string& changes) {
            const json patch = json::parse(changes);
            const nb::gil_scoped_release unlocked;
            return std::const_pointer_cast<Session::Form>(s->form(patch));
          },
          "changes"_a, "JSON: changes of the run's sampling and workload.")
      .def("submit", &submit, "form"_a, "prompt"_a.none(), "number"_a, "sample"_a = 0, "like"_a.none() = nb::none(),
           "An OutputStream; None where as many requests wait as can.")
      .def("encode", [](const HeldSession& s, const Session::Form& form,
                        const std::string& text) { return s->encode(form, text); })
      .def("decode", [](const HeldSession& s, nb::handle tokens) { return s->decode(tokens_of(tokens, "the tokens")); })
      .def("notices", [](const HeldSession& s) { return s->notices(); })
      .def(
          "close", [](const HeldSession& s, double seconds) { return s->close(seconds); }, "seconds"_a,
          nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("run", [](const HeldSession& s) { return s->run().dump(); })
      .def_prop_ro("promise", [](const HeldSession& s) { return s->promise(); })
      .def_prop_ro("learns", [](const HeldSession& s) { return s->learns(); })
      .def_prop_ro("vocab", [](const HeldSession& s) { return s->target().vocab; });
}

}  // namespace foretoken::python
