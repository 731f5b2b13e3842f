// What the numbers rest on.

function provenance() {
  const {model} = result, sequence = job.seq > 0 ? ` × ${int(job.seq)} tokens` : "";
  return [
    ["Model", [named(model.name), `, class `, named(shortClass(model.class)), `, ${int(model.parameters.numel)} parameters (${int(model.parameters.trainable_numel)} trainable), ${bytes(model.parameters.bytes)} as stored`, result.model.source && [", from ", named(model.source, 200)]]],
    ...model.notes.map(n => ["Note", named(n, 400)]),
    ["Job", `${job.runtime}, ${job.strategy}, ${int(job.world_size)} ranks (${int(job.replicate)} × ${int(job.shard)}), batch ${int(job.batch)}${sequence} on each GPU, ${int(job.accumulate)} micro-batch${job.accumulate === 1 ? "" : "es"} a step`],
    ["Precision", `stored as ${job.storage_dtype}, computed in ${job.param_dtype}, reduced in ${job.reduce_dtype}`],
    ["Training", `${job.optimizer}, loss ${job.loss}, activation checkpointing ${job.activation_checkpointing}, use_orig_params ${job.use_orig_params ? "on" : "off"}`],
    ["Cluster", [named(cluster.name), `: ${int(cluster.gpus)} × `, named(cluster.gpu), `, ${int(cluster.gpus_per_node)} in a node, ${gib(cluster.memory_bytes)} GiB each, budget ${gib(budget)} GiB`]],
    ["fsdplan", `${result.fsdplan}, command ${result.command}`],
  ];
}

section({
  id: "trust", nav: "Trust", title: "Can I trust this?", always: true,
  lead: "Plateaus, units, traffic and the lines marked exact follow from the model by PyTorch's rules. All else is an estimate with an interval, and rests on what is listed here.",
  draw(box) {
    const rows = result.assumptions.map(a => h("tr", {}, h("th", {scope: "row"}, named(a.name), h("span", {class: "under"}, named(a.note, 400))), h("td", {class: "num"}, named(a.value, 200)), h("td", {}, named(a.from, 200))));
    const save = h("button", {id: "save-json", onclick() {
      const link = h("a", {href: URL.createObjectURL(new Blob([byId("report-data").textContent], {type: "application/json"})), download: "fsdplan-result.json"});
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }}, "Save the data as JSON");
    box.replaceChildren(table([["Assumption"], ["Value"], ["From"]], rows, {id: "assumptions"}), h("h3", {class: "apart"}, "Provenance"),
      h("dl", {id: "provenance"}, provenance().map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)])), h("p", {class: "apart"}, save));
  },
});
