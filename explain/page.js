// Hovering a cell lights up every cell that reads the same token, and says everything about it below.
(function () {
  var box = document.getElementById("hover"), lit = [];
  function clear() {
    lit.forEach(function (td) { td.classList.remove("lit"); });
    lit = [];
    box.hidden = true;
  }
  document.addEventListener("mouseover", function (e) {
    var td = e.target.closest && e.target.closest(".grid td");
    clear();
    if (!td) return;
    var heads = td.closest("table").tHead.rows, place = heads[heads.length - 1].cells[td.cellIndex];
    box.textContent = place.title + " · " + td.title;
    box.hidden = false;
    if (td.dataset.s === "-") return;
    td.closest("details").querySelectorAll('.grid td[data-s="' + td.dataset.s + '"]').forEach(function (x) {
      x.classList.add("lit");
      lit.push(x);
    });
  });
})();
